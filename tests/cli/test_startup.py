import os
import re
import sys

import pytest
from conftest import ROOT, run_command, run_script
from helpers import heed_signals


def spin_count(*command, **variables):
    environment = {k: v for k, v in os.environ.items() if k not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    environment |= {"OMP_DISPLAY_ENV": "VERBOSE", **variables}
    process = run_command([sys.executable, *command, "--help"], cwd=ROOT, env=environment)
    found = re.search(r"GOMP_SPINCOUNT = '(\d+)'", process.stderr)
    if not found:
        pytest.skip("this build of PyTorch does not use GNU OpenMP")
    return int(found[1])


@pytest.mark.slow
def test_openmp_threads_of_every_command_spin_for_a_short_time_unless_the_user_chooses():
    assert [spin_count("train.py"), spin_count("sample.py"), spin_count("-m", "experiments.heads")] == [8000] * 3
    assert spin_count("-m", "page") == 8000
    assert spin_count("train.py", GOMP_SPINCOUNT="77") == 77
    assert spin_count("train.py", OMP_WAIT_POLICY="active") > 1_000_000


@pytest.mark.parametrize("command", ["train.py", "sample.py", "-m experiments", "-m textbook", "-m page"])
def test_without_the_libraries_a_command_says_in_one_line_what_to_do(command):
    ended = run_command([sys.executable, "-S", *command.split()], cwd=ROOT)
    (line,) = ended.stderr.splitlines()
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "lacks torch, numpy" in line
    assert f"activate the environment (. {ROOT}/.venv/bin/activate)" in line


@pytest.mark.parametrize(
    ("command", "library"),
    [
        ("-m textbook", "matplotlib"),
        ("-m page", "jinja2"),
        *(("-m experiments.report", each) for each in ("matplotlib", "scipy", "jinja2")),
    ],
)
def test_the_other_commands_name_a_library_that_they_lack(tmp_path, command, library):
    (tmp_path / "sitecustomize.py").write_text(f"import sys; sys.modules[{library!r}] = None")  # as if it were missing
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    ended = run_command([sys.executable, *command.split()], cwd=ROOT, env=environment)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert f"{sys.executable} lacks {library}: activate" in ended.stderr
    assert ended.stderr.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("command", ["-m textbook", "-m experiments.report --help"])
def test_a_backend_of_matplotlib_that_is_missing_ends_no_command(command):
    """Jupyter sets MPLBACKEND for `!python -m ...`, too, whose environment may lack it."""
    ended = run_command([sys.executable, *command.split()], cwd=ROOT, env=os.environ | {"MPLBACKEND": "gone"})
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("command", ["train.py", "sample.py", "-m experiments.heads", "-m textbook", "-m page"])
def test_ctrl_c_while_libraries_are_imported_ends_a_command_with_one_line(tmp_path, command):
    (tmp_path / "torch.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    ended = run_command([sys.executable, *command.split()], cwd=ROOT, env=environment, preexec_fn=heed_signals)
    assert (ended.returncode, ended.stdout) == (130, "")
    assert ended.stderr == "\nInterrupted while starting; nothing was written\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [["--config", "tiny.yaml", "train.name=new"], ["--resume", "runs/tiny"]], ids=" ".join
)
def test_ctrl_c_while_a_text_is_read_ends_a_run_with_one_line(run, arguments):
    """The process sends itself the signal when it opens the text; until then, it behaves as it always does."""
    hook = "lambda event, values: event == 'open' and str(values[0]).endswith('text.txt') and os.kill(os.getpid(), 2)"
    workplace = run.path.parents[1]
    (workplace / "sitecustomize.py").write_text(f"import os, sys; sys.addaudithook({hook})")
    environment = os.environ | {"PYTHONPATH": str(workplace)}
    before = sorted(run.path.rglob("*"))
    ended = run_script("train.py", *arguments, env=environment, preexec_fn=heed_signals)
    assert (ended.returncode, ended.stdout) == (130, "")
    assert ended.stderr == "\ntrain.py: interrupted before the first step; nothing is lost\n"
    assert (sorted(run.path.rglob("*")), run.path.with_name("new").exists()) == (before, False)
