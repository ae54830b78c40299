import random

import numpy as np
import pytest

from data import copies


def longest(piece, text):
    """Return the place of the first longest stretch of a piece that stands in a text, by trying all of them."""
    start, length = 0, 0
    for i in range(len(piece)):
        while i + length < len(piece) and piece[i : i + length + 1] in text:
            start, length = i, length + 1
    return slice(start, start + length)


@pytest.mark.parametrize("at_once", [1, 7, 1 << 22])
def test_the_longest_copied_stretches_are_those_that_trying_all_finds(monkeypatch, at_once):
    monkeypatch.setattr(copies, "AT_ONCE", at_once)
    draw = random.Random(0)
    for _ in range(60):
        text = "".join(draw.choices("abc", k=draw.randint(1, 60)))
        pieces = ["".join(draw.choices("abcd", k=draw.randint(0, 20))) for _ in range(3)]
        found = copies.longest_copies([np.frombuffer(p.encode(), np.uint8) for p in pieces], encoded(text))
        for piece, place in zip(pieces, found, strict=True):
            expected = longest(piece, text)
            assert place.stop - place.start == expected.stop - expected.start
            assert piece[place] in text


def encoded(text):
    return np.frombuffer(text.encode(), np.uint8)


def test_a_whole_copy_is_found_in_a_text_of_a_million_characters():
    text = encoded("".join(random.Random(1).choices("abcdefgh ", k=1_000_000)))
    piece = np.concatenate((text[999_000:999_900], text[:700]))
    assert copies.longest_copies([piece, piece[:1], piece[:0]], text) == [slice(0, 900), slice(0, 1), slice(0, 0)]
