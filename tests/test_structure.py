import ast
import dataclasses
import functools
import subprocess
import sys
import tomllib
import typing
from collections import Counter

import pytest
import yaml
from conftest import ROOT

from cli.startup import LIBRARIES
from training.config import Config

PACKAGES = ("cli", "model", "data", "training", "textbook", "page", "experiments")
MAY_IMPORT = {"cli": {"cli"}, "model": {"cli", "model"}, "data": {"cli", "data"}, "experiments": {*PACKAGES}}
MAY_IMPORT |= {name: {"cli", "model", "data", "training"} for name in ("training", "train", "sample")}
MAY_IMPORT |= {"textbook": {"cli", "model", "data", "textbook"}, "page": {"cli", "model", "data", "training", "page"}}


def product_files():
    return [ROOT / "train.py", ROOT / "sample.py", *(file for p in PACKAGES for file in (ROOT / p).rglob("*.py"))]


def module_name(file):
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def imports():
    """Return, for each module, the project's modules that it imports, anywhere in its code."""
    modules = {module_name(file): ast.parse(file.read_text(encoding="utf-8")) for file in product_files()}
    result = {name: set() for name in modules}
    for name, tree in modules.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                full_names = [f"{node.module}.{alias.name}" for alias in node.names]
                result[name] |= {full if full in modules else node.module for full in full_names}
            elif isinstance(node, ast.Import):
                result[name] |= {alias.name for alias in node.names}
        result[name] &= modules.keys()
    return result


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_packages_import_only_packages_below_them(package):
    used = set().union(*(used for name, used in imports().items() if name.split(".")[0] == package))
    assert {name.split(".")[0] for name in used} <= MAY_IMPORT[package]


def test_there_are_no_circular_imports():
    left = dict(imports())
    while free := [name for name, used in left.items() if not used & left.keys() - {name}]:
        for name in free:
            del left[name]
    assert sorted(left) == []


def test_the_settings_of_a_model_can_be_read_without_importing_torch():
    code = "import sys, model.config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_only_the_run_and_the_optimiser_share_the_name_of_a_setting_so_labels_of_sweeps_can_leave_out_the_section():
    sections = typing.get_type_hints(Config).values()
    counts = Counter(field.name for section in sections for field in dataclasses.fields(section))
    assert [name for name, n in counts.items() if n > 1] == ["name"]  # a sweep cannot vary train.name


def libraries(nodes):
    """Return the libraries that statements import, without Python's own."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module)
    return {name.partition(".")[0] for name in found} - sys.stdlib_module_names


def test_every_command_checks_the_libraries_that_it_imports():
    used = {name: set() for name in (*PACKAGES, "train.py", "sample.py")}
    for file in product_files():
        used[file.relative_to(ROOT).parts[0]] |= libraries(ast.parse(file.read_text(encoding="utf-8")).body) - {*used}
    assert used.pop("textbook") - {*LIBRARIES} == {"matplotlib"}
    assert used.pop("experiments") - {*LIBRARIES} == {"matplotlib", "scipy"}
    assert used.pop("page") - {*LIBRARIES} == {"jinja2"}
    assert set().union(*used.values()) - {"train", "sample"} == {*LIBRARIES}


def test_pyproject_requirements_and_citation_say_the_same():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    builds = project["dependency-groups"]
    assert builds["cpu"] == builds["gpu"]
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    assert sorted(lines) == sorted(project["project"]["dependencies"] + builds["cpu"])
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == project["project"]["version"]
