import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, train_tiny
from helpers import new_environment
from prepared import run_prepared

from experiments.sweep.plan import make_plan
from training.config_file import read_settings, to_yaml

FOLDERS = ("configs", "data", "model", "textbook", "training", "experiments", "experiments/studies", "page")
NAMES = ["README.md", "CONTRIBUTING.md", *(f"{folder}/README.md" for folder in FOLDERS), "experiments/other_tools.md"]
STUDIES = ("attention", "heads", "machines", "RECORDS", "scaling", "texts")
NAMES += [f"experiments/studies/{name}.md" for name in STUDIES]
PAGES = [ROOT / name for name in NAMES]
# .ci/run itself runs these commands.
INSTALL = "pip install -r requirements.txt -r .ci/requirements.txt"
RUN_BY_CI = {"python -m pytest", 'python -m pytest -m "slow and not nightly" -n 3', "mypy", "ruff check ."}
RUN_BY_CI |= {"ruff format --check .", INSTALL, "npm run --prefix .ci check"}
RUN_BY_CI |= {"npm install --prefix .ci --no-package-lock --no-audit --no-fund"}
# The first lines of README.md, which CI runs.
FIRST = ("git clone", "cd gpt", "python3 -m venv", ".venv/bin/pip", ".venv/bin/python -m pytest")
# tests/experiments/test_studies.py runs the reports.
TESTED_ELSEWHERE = ("python -m experiments.report experiments/studies/heads/", *FIRST)
# What makes a command of a page short: the program or file that it names, and the arguments to add.
SHORT_RUN = ["train.max_steps=4", "train.eval_every_steps=4", "train.eval_characters=500", "train.sample_length=20"]
SMALL_MODEL = ["model.n_layer=2", "model.block_size=64", "model.ngram_rows=1024", "train.batch_size=4"]
SHORTER = {
    "--config": SHORT_RUN,
    "--resume": ["train.max_steps=6"],
    "experiments.sweep": ["train.seed=0"],
    "train.name=from-": ["train.seed=0,1"],  # the only setting that these sweeps vary
    "train.name=n_head": ["model.n_head=1,2"],
    "train.name=sixteen": ["model.n_layer=1"],  # whose heads are silenced one by one
    "--steps": ["--steps", "3"],
    "ladder": ["--steps", "3"],
    "experiments.heads": ["--no-browser"],
    "page": ["--no-browser"],
}
# The sweeps of these pages are planned whole, as they stand on the page, and train one point: a sweep that runs is on
# the other pages.
PLANNED = ("model/README.md", *(f"experiments/studies/{name}.md" for name in ("README", "attention", "heads", "texts")))


def text(page):
    return page.read_text(encoding="utf-8")


def test_the_readme_shows_the_head_of_the_one_file_gpt():
    readme = text(ROOT / "README.md")
    head = re.search(r"```python\n(.*?)```", readme, re.DOTALL)[1].splitlines()
    lines = [line.strip() for line in text(ROOT / "textbook/chapter7_gpt.py").splitlines()]
    places = [lines.index(line) for line in head]
    assert places == [places[0], *range(places[1], places[1] + 5)]  # the triangle, and five lines in a row


def test_the_page_of_the_model_compares_lines_of_chapter_7_with_lines_of_the_model():
    table = text(ROOT / "model/README.md").partition("| chapter 7 | `model/` |\n|---|---|\n")[2].partition("\n\n")[0]
    chapter = text(ROOT / "textbook/chapter7_gpt.py")
    model = "".join(map(text, sorted((ROOT / "model").glob("*.py"))))
    rows = [re.findall(r"`(.+?)`", line) for line in table.splitlines()]
    assert len(rows) >= 10
    for theirs, *ours in rows:
        assert theirs in chapter
        assert all(line in model for line in ours), ours


def commands(pages=PAGES):
    """Return each command of the bash blocks once, in order, and split commands joined by &&."""
    blocks = [block for page in pages for block in re.findall(r"```bash\n(.*?)```", text(page), re.DOTALL)]
    lines = [line.partition("  # ")[0] for block in blocks for line in block.splitlines()]
    return list(dict.fromkeys(command for line in lines for command in line.split(" && ")))


def shortened(command):
    """Return the arguments of a Python command with additions that make it short."""
    program, *arguments = shlex.split(command.replace("step-67", "step-4"))  # the last of a short run
    if program == "torchrun":
        arguments = ["-m", "torch.distributed.run", *arguments]
    else:
        assert program in ("python", ".venv/bin/python"), command
    words = [sign for sign in SHORTER if any(argument.startswith(sign) for argument in arguments)]
    if "--config" in arguments:
        arguments += SMALL_MODEL
    return arguments + [addition for word in words for addition in SHORTER[word]]


def points_of(command):
    program, *arguments = shlex.split(command)
    if program != "python" or arguments[:2] != ["-m", "experiments.sweep"]:
        return ()
    config = arguments[arguments.index("--config") + 1]
    return make_plan(read_settings(ROOT / config), [argument for argument in arguments if "=" in argument]).points


def test_readme_commands_that_are_not_tested_here_are_run_by_ci():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    for command in RUN_BY_CI - {INSTALL} | {"pip install -r .ci/requirements.txt"}:
        assert command in script


def test_files_named_in_the_readme_exist():
    folders = "model|textbook|data|training|tests|configs|experiments|page"
    for page in PAGES:
        for name in re.findall(rf"`((?:{folders})/[\w./]*)`", text(page)):
            assert name.startswith("data/cache") or (ROOT / name).exists(), f"{page}: {name}"
        for name in re.findall(r"\]\(((?!http)[^)]*)\)", text(page)):
            file, _, heading = name.partition("#")
            target = page.parent / file if file else page
            assert target.exists(), f"{page}: {name}"
            if heading:
                headings = re.findall(r"^#+ (.*)", text(target), re.MULTILINE)
                assert heading in [re.sub(r"\W+", "-", h.lower()) for h in headings], f"{page}: {name}"


def parts():
    """Return lists of commands for processes that test at once; each uses only runs of its earlier commands."""
    studied, textbook = (commands([ROOT / name for name in names]) for names in (PLANNED, ["textbook/README.md"]))
    return [studied, textbook, [command for command in commands() if command not in studied + textbook]]


@pytest.mark.slow
@pytest.mark.parametrize("part", parts(), ids=["of the model and the studies", "of the textbook", "of other pages"])
def test_every_command_runs(part, tmp_path):
    pytest.importorskip("transformers")
    project = tmp_path / "project"
    shutil.copytree(ROOT, project, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    shutil.rmtree(project / "runs", ignore_errors=True)
    (project / "other.txt").write_text("Sphinx of black quartz, judge my vow.\n" * 200, encoding="utf-8")
    (project / "my.txt").write_text("The quick brown fox jumps over the lazy dog.\n" * 200, encoding="utf-8")
    planned = commands([ROOT / name for name in PLANNED])
    to_run = [c for c in part if c not in RUN_BY_CI and not c.startswith(TESTED_ELSEWHERE)]
    assert len(to_run) > 2
    for command in to_run:
        arguments = shortened(command)
        if command in planned and (points := points_of(command)):
            (project / "point.yaml").write_text(to_yaml(points[0].config), encoding="utf-8")
            arguments = ["train.py", "--config", "point.yaml", *SHORT_RUN, "train.batch_size=1"]
        finished = run_prepared(arguments, cwd=project)
        unsolved = "--check" in arguments  # the exercise, just written
        assert finished.returncode == unsolved, f"{command}\n{finished.stderr}"
        assert finished.stdout.strip(), command


@pytest.mark.nightly
def test_the_lines_for_other_tools_run_with_the_real_packages(tmp_path):
    python = new_environment(tmp_path / "environment", "bertviz", "captum", "nnsight", "optuna")
    train_tiny(tmp_path, "train.name=shakespeare", "model.block_size=32", "data.characters=Tobe, rnt", "model.n_head=4")
    for block in re.findall(r"```python\n(.*?)```", text(ROOT / "experiments/other_tools.md"), re.DOTALL):
        if "exported/gpt2" not in block:
            block = block.replace("configs/selmere.yaml", "tiny.yaml").replace("n_trials=20", "n_trials=1")
            (tmp_path / "block.py").write_text(block, encoding="utf-8")
            subprocess.run([python, "block.py"], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True)
    assert (tmp_path / "attention.html").is_file()


def test_the_lines_of_python_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    settings = "train.name=shakespeare model.block_size=32 model.ngrams=[2] data.characters=ROMETIJUL:,'?"
    train_tiny(tmp_path, "train.max_steps=2", *settings.split())
    pages = text(ROOT / "experiments/README.md") + text(ROOT / "experiments/studies/README.md")
    for block in re.findall(r"```python\n(.*?)```", pages, re.DOTALL):
        if "runs/shakespeare" in block:
            exec(block, {})
    assert "ROMEO:" in capsys.readouterr().out


def test_a_hosted_notebook_asks_once_for_the_address_of_the_project_and_installs_it(tmp_path, monkeypatch):
    notebook, commands, asked = json.loads(text(ROOT / "experiments/tour.ipynb")), [], []
    first = next(cell for cell in notebook["cells"] if cell["cell_type"] == "code")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    monkeypatch.setattr("builtins.input", lambda question: asked.append(question) or "https://host/project")

    def run(command, check):
        commands.append(command)
        if command[0] == "git":
            Path(command[-1]).mkdir()

    monkeypatch.setattr(subprocess, "run", run)
    for _ in range(2):  # the second time, the kernel has been started again
        os.chdir(tmp_path)
        exec("".join(first["source"]), {})
        assert sys.path[0] == str(Path.cwd()) == str(tmp_path / "character-gpt")
    assert asked == ["The address of the project's page, for git clone: "]
    clone, *installs = commands
    assert clone == ["git", "clone", "--quiet", "https://host/project", "character-gpt"]
    assert [command[1:] for command in installs] == [["-m", "pip", "install", "--quiet", "-r", "requirements.txt"]] * 2


@pytest.mark.slow
def test_the_notebook_runs_and_its_outputs_are_small_and_name_no_path(tmp_path):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    shutil.copytree(ROOT, tmp_path / "project", ignore=shutil.ignore_patterns(".*", "__pycache__"))
    shutil.rmtree(tmp_path / "project/runs", ignore_errors=True)
    content = text(ROOT / "experiments" / "tour.ipynb")
    assert len(content) < 150_000
    assert not re.findall(r"/(?:home|tmp|root|usr|work)/", content)
    notebook = nbformat.reads(content, as_version=4)
    assert all(cell.outputs for cell in notebook.cells[3:] if cell.cell_type == "code")
    (training,) = [cell for cell in notebook.cells if cell.source.startswith("!{sys.executable} train.py")]
    training.source = training.source.replace("train.name=tour", " ".join(["train.name=tour", *SHORT_RUN]))
    where = {"metadata": {"path": str(tmp_path / "project/experiments")}}
    nbclient.NotebookClient(notebook, timeout=600, resources=where).execute()
