"""What all commands share: errors of one line."""

import os
import re
import subprocess
import sys

import pytest
from conftest import ROOT

from cli.command import report_errors
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
    "bug", [ValueError("Expected input batch_size"), OSError("no device")], ids=["of PyTorch", "that names no file"]
)
def test_a_bug_keeps_its_traceback(capsys, bug):
    def work():
        raise bug

    with pytest.raises(type(bug)):
        report_errors("x.py", work, memory="")
    assert capsys.readouterr().err == ""


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
        timeout=180,  # detects a hang
    )
    assert (finished.returncode, finished.stdout) == (status, "done\n")
    assert error in finished.stderr


def test_the_experiments_are_listed_with_one_line_each():
    printed = subprocess.check_output([sys.executable, "-m", "experiments"], cwd=ROOT, text=True, timeout=180)
    listed = re.findall(r"python -m experiments\.(\w+)  +[A-Z]", printed)
    page = (ROOT / "experiments/README.md").read_text(encoding="utf-8")
    assert listed == sorted(re.findall(r"^\| `(\w+)` \| ", page, re.MULTILINE))
