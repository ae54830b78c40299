import re
import subprocess
import sys

import pytest
from conftest import ROOT

from cli.command import CommandParser, report_errors
from cli.errors import LONGEST_LINE, one_line


def test_an_unknown_option_gets_a_suggestion_only_if_one_is_nearly_spelled_so(capsys):
    parser = CommandParser(prog="report")
    parser.add_argument("--target")
    for typed, is_near in (("--targte", True), ("--page", False), ("--start", False)):
        with pytest.raises(SystemExit):
            parser.parse_args([typed, "1"])
        assert ("; did you mean --target?" in capsys.readouterr().err) == is_near


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


@pytest.mark.parametrize("bug", [ValueError("of PyTorch"), OSError("that names no file")], ids=str)
def test_a_bug_keeps_its_traceback(capsys, bug):
    def work():
        raise bug

    with pytest.raises(type(bug)):
        report_errors("x.py", work, memory="")
    assert capsys.readouterr().err == ""


def test_the_experiments_are_listed_with_one_line_each():
    printed = subprocess.check_output([sys.executable, "-m", "experiments"], cwd=ROOT, text=True, timeout=180)
    listed = re.findall(r"python -m experiments\.(\w+)  +[A-Z]", printed)
    page = (ROOT / "experiments/README.md").read_text(encoding="utf-8")
    assert listed == sorted(re.findall(r"^\| `(\w+)` \| ", page, re.MULTILINE))
