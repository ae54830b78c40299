import re
from xml.etree import ElementTree

import pytest
from conftest import ROOT

from experiments.attention_picture import CHARACTERS, SHOWN, T, main, picture

STORED = ROOT / "experiments" / "studies" / "attention_picture.svg"
NAMESPACE = {"svg": "http://www.w3.org/2000/svg"}


def texts(kind):
    """The texts of a class, in the order of drawing."""
    elements = ElementTree.fromstring(picture()).iterfind(".//svg:text", NAMESPACE)
    return ["".join(e.itertext()) for e in elements if e.get("class") == kind]


def test_the_stored_picture_is_the_one_that_the_command_draws(tmp_path):
    assert main(["--output", str(tmp_path / "drawn.svg")]) == 0
    drawn = (tmp_path / "drawn.svg").read_text(encoding="utf-8")
    assert drawn == STORED.read_text(encoding="utf-8"), f"draw it again: --output {STORED.relative_to(ROOT)}"
    assert STORED.stat().st_size < 60_000


def test_every_score_of_the_future_is_hidden_and_every_row_of_weights_sums_to_one():
    assert texts("number hidden") == ["\N{MINUS SIGN}∞"] * (T * (T - 1) // 2)
    numbers = [float(n.replace("\N{MINUS SIGN}", "-")) for n in texts("number")]
    n_visible = T * (T + 1) // 2
    assert len(numbers) == 2 * n_visible
    for t in range(T):
        row = numbers[n_visible:][t * (t + 1) // 2 :][: t + 1]
        assert sum(row) == pytest.approx(1, abs=0.005)


def test_the_weights_in_words_are_those_of_the_framed_row():
    *_, sentence = texts("left")
    n_before = T * (T + 1) // 2 + SHOWN * (SHOWN + 1) // 2
    assert re.findall(r"(0\.\d\d) · value of (.)", sentence) == [
        (weight, character.replace(" ", "␣"))
        for weight, character in zip(texts("number")[n_before:], CHARACTERS[: SHOWN + 1], strict=False)
    ]


def test_a_place_where_nothing_can_be_written_is_one_line(capsys):
    assert main(["--output", "nowhere/picture.svg"]) == 2
    assert capsys.readouterr().err == "experiments.attention_picture: nowhere/picture.svg: No such file or directory\n"
