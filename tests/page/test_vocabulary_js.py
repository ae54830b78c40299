"""The characters of a page: their labels, those that look like them, and their rows in a model that trains on."""

import unicodedata

import pytest
import torch
from helpers import make_checkpoint
from page_numbers import labelled
from pages_in_browser import open_page
from torch.testing import assert_close

from data.vocabulary import LOOK_ALIKES, Vocabulary
from page.models import make_page
from training.runs.checkpoint import save_checkpoint
from training.trained_model import load_model

NEUTRAL = "\u0660\u06f9"  # digits of Arabic
BLOCKS = ((0x590, 0x8FF), (0xFB1D, 0xFDFF), (0xFE70, 0xFEFF), (0x10800, 0x10FFF), (0x1E800, 0x1EFFF))


@pytest.fixture(scope="module")
def page(browser, tmp_path_factory):
    """Return the browser at a page with a small model."""
    folder = tmp_path_factory.mktemp("page")
    save_checkpoint(make_checkpoint(), folder / "any.safetensors")
    (folder / "page.html").write_text(make_page([load_model(folder / "any.safetensors", "cpu")]), "utf-8")
    open_page(browser, folder / "page.html")
    return browser


def test_a_character_has_a_label_that_one_can_see_and_that_leaves_the_order_of_the_others(page):
    """Signs and numbers in blocks of letters from right to left have no direction, so they may have either label."""
    assigned = [chr(i) for i in range(0x20000) if unicodedata.category(chr(i)) not in ("Cn", "Cs")]
    found = page.execute_script("return arguments[0].map(visible)", assigned)
    for character, shown in zip(assigned, found, strict=True):
        is_in_block = any(first <= ord(character) <= last for first, last in BLOCKS)
        if is_in_block and unicodedata.category(character)[0] in "NPS" and labelled(character) == character:
            continue
        assert shown == labelled(character), f"U+{ord(character):04X}"
    assert [*map(labelled, "b \t\n\x01א")] == ["b", "␣", "⇥", "⏎", "U+0001", "U+05D0"]
    assert page.execute_script("return arguments[0].map(visible)", [*NEUTRAL]) == [*NEUTRAL]


@pytest.mark.parametrize("known", ["\n ab", "\t\nab", "'ab\r", "\n\rab\u2009\u2013", "“”a", "\nﬁ😀"])
def test_the_page_reads_the_characters_that_the_vocabulary_has_and_those_that_look_like_them(page, known):
    vocabulary = Vocabulary(known)
    found = page.execute_script("return vocabularyOf(...arguments)", vocabulary.characters, LOOK_ALIKES)
    alike = {character: each["plain"] for character, each in found["alike"].items()}
    assert alike == vocabulary.look_alikes
    assert found["labels"] == [*map(labelled, vocabulary.characters)]
    for character, plain in alike.items():
        assert found["alike"][character]["spoken"] == f"{labelled(plain)} for {labelled(character)}"
    return_ = "␍" if "\n" in known else "\n"
    assert found["characters"] == vocabulary.characters.replace("\r", return_)
    assert found["start"] == vocabulary.default_prompt.replace("\r", return_)


def test_a_model_that_trains_on_with_another_text_has_a_mean_row_for_each_new_character(page):
    before, now = "\nab😀", "\nb€😀"
    names = ("token_embedding.weight", "lm_head.weight", "blocks.0.mlp.up.weight")
    weights = {name: torch.randn(len(before), 3) for name in names}
    script = """const weights = Object.entries(arguments[0]).map(([name, x]) => [name, Float32Array.from(x.flat())]);
        const adopted = Object.entries(adopt(Object.fromEntries(weights), arguments[1], arguments[2]));
        return Object.fromEntries(adopted.map(([name, x]) => [name, [...x]]))"""
    found = page.execute_script(script, {name: x.tolist() for name, x in weights.items()}, before, now)
    for name, x in weights.items():
        expected = x if "mlp" in name else torch.stack((x[0], x[2], x.mean(0), x[3]))
        assert_close(torch.tensor(found[name]).view(len(now), 3), expected)
