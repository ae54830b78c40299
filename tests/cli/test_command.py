"""What all commands share: errors of one line."""

import os
import subprocess
import sys

import pytest
import torch
from conftest import ROOT

import sample
import train
from cli.command import report_errors
from cli.errors import LONGEST_LINE, UserError, error_file, one_line
from model.gpt import GPT


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("model.n_head=5 does not divide", "model.n_head=5 does not divide"),
        ("a\nb\r\tc", r"a\nb\r\tc"),
        ("\x1b[31mred\x9b", r"\x1b[31mred\x9b"),
        ("\u202eright to left", r"\u202eright to left"),
        ("\udcff", r"\udcff"),
        ("ünï 明 🙂", "ünï 明 🙂"),
    ],
)
def test_control_characters_in_a_message_are_escaped(text, shown):
    assert one_line(text) == shown


def test_the_middle_of_a_long_message_is_left_out():
    line = one_line("begin" + "x" * 10**6 + "end")
    assert len(line) <= LONGEST_LINE + len(" ... ")
    assert line.startswith("begin")
    assert line.endswith("xend")


def raise_in_pytorch(*_, **__):
    """Raise a real ValueError of PyTorch."""
    torch.nn.functional.cross_entropy(torch.zeros(2, 3), torch.zeros(5, dtype=torch.long))


@pytest.mark.parametrize("command", ["train", "sample"])
def test_a_bug_is_a_traceback_and_a_line_that_says_so_but_never_looks_like_a_mistake(
    workplace, capsys, monkeypatch, command
):
    assert train.main(["--config", "tiny.yaml", "train.max_steps=2", "train.eval_every_steps=2"]) == 0
    capsys.readouterr()
    monkeypatch.setattr(GPT, "forward", raise_in_pytorch)
    status = train.main(["--resume", "runs/tiny", "train.max_steps=4"]) if command == "train" else sample.main([])
    said = capsys.readouterr().err
    assert status == 1
    assert "Traceback" in said
    assert "ValueError: Expected input batch_size (2) to match target batch_size (5)." in said
    assert said.endswith(f"{command}.py: this is a bug in the program; please report it with the lines above\n")


def test_an_error_of_the_operating_system_that_names_no_file_is_a_bug(capsys):
    def work():
        raise OSError("no device")

    assert report_errors("x.py", work, memory="") == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(("end", "status", "error"), [("return 7", 7, ""), ("1 / 0", 1, "ZeroDivisionError")])
def test_no_thread_keeps_a_process_of_torchrun_from_ending(end, status, error):
    """PyTorch's process groups leave threads that abort or block an interpreter that ends."""
    program = (
        "import threading; from cli.command import run_command\n"
        "def main():\n"
        "    threading.Thread(target=threading.Event().wait).start()\n"
        "    print('done')\n"
        f"    {end}\n"
        "run_command(main)"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=os.environ | {"WORLD_SIZE": "2"},
        capture_output=True,
        text=True,
        timeout=60,  # detects a hang
    )
    assert (finished.returncode, finished.stdout) == (status, "done\n")
    assert error in finished.stderr


def test_the_first_error_of_a_run_is_left_in_a_file_until_it_goes_on(tmp_path):
    file = tmp_path / "error.txt"
    for error, line in ((UserError("the disk is full"), "the disk is full"), (KeyError("lr"), "KeyError: 'lr'")):
        with pytest.raises(type(error)), error_file(file):
            with pytest.raises(UserError), error_file(tmp_path / "other.txt"):
                raise UserError("another")
            assert not file.exists()
            raise error
        assert file.read_text() == f"{line}\n"
    with error_file(file):
        pass
    assert not file.exists()
