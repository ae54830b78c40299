"""Commands that are printed to be pasted."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

from cli.hints import to_paste


@pytest.mark.parametrize(("program", "is_activated"), [("sample.py", False), ("experiments", True)])
def test_a_command_printed_in_another_folder_runs_there(tmp_path, monkeypatch, program, is_activated):
    folder = str(Path(sys.executable).parent)
    others = [path for path in os.environ["PATH"].split(os.pathsep) if path != folder]
    monkeypatch.setenv("PATH", os.pathsep.join([folder, *others] if is_activated else others))
    monkeypatch.chdir(tmp_path)
    command = to_paste(program, "--help")
    finished = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=100)
    assert finished.stdout.startswith(f"usage: {program}"), finished.stderr


def test_what_a_command_names_inside_the_folder_is_short_and_the_rest_is_quoted(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "executable", str(ROOT / ".venv/bin/python"))
    command = to_paste("train.py", "--config", ROOT / "configs/heads.yaml", "--from", Path("runs/a b"))
    assert command == ".venv/bin/python train.py --config configs/heads.yaml --from 'runs/a b'"
