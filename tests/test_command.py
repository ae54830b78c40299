"""What all commands share: errors of one line."""

import os
import subprocess
import sys

import pytest
from conftest import ROOT

import train
from cli.errors import LONGEST_LINE, one_line


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


@pytest.mark.parametrize(
    "override",
    [
        "data.corpus=a\nb",
        "data.corpus=\x1b[31m",
        "data.corpus=" + "x" * 500_000,
        "data.corpus=~nouser/x",
        "model.n_head=\n",
    ],
)
def test_any_value_of_a_setting_produces_one_short_line_without_control_characters(workplace, capsys, override):
    assert train.main(["--config", "tiny.yaml", override]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said[:-1].isprintable()
    assert len(said) < 1_200


@pytest.mark.parametrize("argument", ["--zzz\n", "--workers=\x1b"])
def test_an_invalid_option_produces_one_line_without_control_characters(capsys, argument):
    with pytest.raises(SystemExit) as end:
        train.main(["--config", "tiny.yaml", argument])
    said = capsys.readouterr().err
    assert (end.value.code, said.count("\n")) == (2, 1)
    assert said[:-1].isprintable()


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
