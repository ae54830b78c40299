import sys
from pathlib import Path

import pytest
from conftest import ROOT, run_command

from cli.hints import to_paste

BIN = Path(sys.executable).parent


@pytest.mark.slow
@pytest.mark.parametrize(("program", "path"), [("sample.py", "/bin"), ("experiments.score", f"{BIN}:/bin")])
def test_a_command_printed_in_another_folder_runs_there(tmp_path, monkeypatch, program, path):
    monkeypatch.setenv("PATH", path)  # with the environment activated or not
    monkeypatch.chdir(tmp_path)
    for name in ("cli.py", "data.py", "experiments.py", "model.py"):  # a person's own
        (tmp_path / name).write_text("raise SystemExit('not the project')")
    finished = run_command(["bash", "-c", to_paste(program, "--help")])
    assert finished.stdout.startswith(f"usage: {program}"), finished.stderr


def test_paths_inside_the_folder_are_printed_relative_to_it_and_other_words_are_quoted(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "executable", str(ROOT / ".venv/bin/python"))
    command = to_paste("train.py", "--config", ROOT / "configs/heads.yaml", "--from", Path("runs/a b"))
    assert command == ".venv/bin/python train.py --config configs/heads.yaml --from 'runs/a b'"
