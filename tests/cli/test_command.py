import re

import pytest
from conftest import ROOT

from cli.command import report_errors
from cli.errors import one_line


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


@pytest.mark.parametrize("bug", [ValueError("of PyTorch"), OSError("that names no file")], ids=str)
def test_a_bug_keeps_its_traceback(capsys, bug):
    def work():
        raise bug

    with pytest.raises(type(bug)):
        report_errors("x.py", work, memory="")
    assert capsys.readouterr().err == ""


def test_ctrl_c_is_one_line_and_the_status_of_a_signal(capsys):
    def work():
        raise KeyboardInterrupt

    assert report_errors("x.py", work, memory="") == 130
    assert capsys.readouterr().err == "\nx.py: interrupted\n"


def test_the_page_of_the_experiments_names_every_command():
    files = [*(ROOT / "experiments").glob("*.py"), *(ROOT / "experiments").glob("*/__main__.py")]
    texts = "".join(file.read_text(encoding="utf-8") for file in files)
    page = (ROOT / "experiments/README.md").read_text(encoding="utf-8")
    commands = set(re.findall(r"^\"\"\".*: python -m experiments\.(\w+)", texts, re.MULTILINE))
    assert commands == set(re.findall(r"^\| `(\w+)` \| ", page, re.MULTILINE))
