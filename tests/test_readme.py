"""The documentation is correct: its commands run, in order, and the files that it names exist."""

import re
import shlex
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT

PAGES = [
    ROOT / "README.md",
    *(ROOT / f"{d}/README.md" for d in ("configs", "model", "experiments", "experiments/studies")),
]
# .ci/run itself runs these commands.
RUN_BY_CI = {"pip install -r requirements.txt", "python -m pytest", "python -m pytest -m slow -n 2", "mypy"}
RUN_BY_CI |= {
    "ruff check .",
    "ruff format --check .",
    "pip install matplotlib scipy selenium hypothesis zstandard pytest-xdist mypy==2.4.1 types-PyYAML types-tqdm "
    "ruff==0.17.5",
}
SHORTER = {
    "--config": ["train.max_steps=4", "train.eval_every_steps=4", "train.eval_characters=2000"],
    "--resume": ["train.max_steps=6"],
}


def text(page):
    return page.read_text(encoding="utf-8")


def test_the_reading_order_gives_the_number_of_lines_of_each_file():
    rows = re.findall(r"^\| `(model/\w+\.py)` \| (\d+) \|", text(ROOT / "model" / "README.md"), re.MULTILINE)
    assert len(rows) == 8
    for name, n_lines in rows:
        assert int(n_lines) == len(text(ROOT / name).splitlines()), name


def test_no_page_has_a_gap_left_to_fill():
    for page in PAGES:
        assert not re.findall(r"@[A-Z_]+@", text(page)), page


def commands():
    """Return each command of the bash blocks once, in order, and split commands joined by &&."""
    blocks = [block for page in PAGES for block in re.findall(r"```bash\n(.*?)```", text(page), re.DOTALL)]
    lines = [line for block in blocks for line in block.splitlines()]
    return list(dict.fromkeys(command for line in lines for command in line.split(" && ")))


def test_readme_commands_that_are_not_tested_here_are_run_by_ci():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    for command in (*RUN_BY_CI, "pip install -r requirements.txt && python -m pytest"):
        assert command in script


def test_files_named_in_the_readme_exist():
    for page in PAGES:
        for name in re.findall(r"`((?:model|data|training|tests|configs|experiments)/[\w./]*)`", text(page)):
            assert name.startswith("data/cache") or (ROOT / name).exists(), f"{page}: {name}"
        for name in re.findall(r"\]\(((?!http)[^)]*)\)", text(page)):
            assert (page.parent / name).is_file(), f"{page}: {name}"


@pytest.mark.slow
def test_every_command_in_the_readme_runs(tmp_path):
    pytest.importorskip("matplotlib")
    project = tmp_path / "project"
    shutil.copytree(ROOT, project, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    shutil.rmtree(project / "runs", ignore_errors=True)
    (project / "my.txt").write_text("The quick brown fox jumps over the lazy dog.\n" * 200, encoding="utf-8")
    n_run = 0
    for command in commands():
        if command in RUN_BY_CI:
            continue
        program, *arguments = shlex.split(command)
        if program == "torchrun":
            arguments = ["-m", "torch.distributed.run", *arguments]
        else:
            assert program == "python", command
        if "train.py" in arguments:
            arguments += SHORTER["--resume" if "--resume" in arguments else "--config"]
        if "--sweep" in arguments or any(argument.startswith("configs/heads") for argument in arguments):
            arguments += ["train.seed=0", "model.block_size=32"]
            if "configs/heads_per_layer.yaml" not in arguments:  # it gives the number of heads of six layers
                arguments += ["model.n_layer=1"]
        if "experiments.textbook" in arguments:
            arguments += ["--steps", "3"]
        if "experiments.reverse" in arguments:
            arguments += ["--steps", "3"]
        if "experiments.heads" in arguments:
            arguments += ["--characters", "600", "--windows", "2"]
        if "experiments.torture" in arguments:
            arguments += ["--rounds", "1"]
        if "experiments.race" in arguments:
            arguments += ["--target", "5", "--seeds", "1", *SHORTER["--config"]]
        finished = subprocess.run(
            [sys.executable, *arguments],
            cwd=project,
            capture_output=True,
            text=True,
            encoding="utf-8",
            input="ROMEO:\n",
        )
        assert finished.returncode == 0, f"{command}\n{finished.stderr}"
        assert finished.stdout.strip()
        n_run += 1
    assert n_run >= 8


def test_every_test_that_the_table_of_faults_names_exists():
    named = re.findall(r"`([\w/]+\.py)::(test_\w+)`", (ROOT / "tests" / "README.md").read_text(encoding="utf-8"))
    assert len(named) > 40
    for file, name in named:
        assert f"def {name}(" in (ROOT / "tests" / file).read_text(encoding="utf-8"), name
