import re

import numpy as np
import pytest

from data.vocabulary import UnknownCharacterError, Vocabulary

CURLY = "\N{RIGHT SINGLE QUOTATION MARK}"
TEXTS = {
    "ascii": "First Citizen:\nBefore we proceed any further, hear me speak.\n",
    "chinese": "床前明月光,疑是地上霜。\n举头望明月,低头思故乡。\n",
    "emoji": "🙂🙃👩‍👩‍👧‍👦 plain é e\u0301\n",
    "right to left": "בְּרֵאשִׁית בָּרָא\n",
    "control": "\ufeffa\r\nb\x00c\x1b[0m\n",
    "many": "".join(map(chr, range(0x4E00, 0x4E00 + 20_000))),
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_decoding_restores_any_encoded_text(text):
    vocabulary = Vocabulary(text)
    for each in (text, text[::-1]):
        assert vocabulary.decode(vocabulary.encode(each)) == each


def test_ids_follow_the_order_of_the_code_points():
    vocabulary = Vocabulary("banana!")
    assert vocabulary.characters == "!abn"
    assert vocabulary.encode("nab!").tolist() == [3, 1, 2, 0]


@pytest.mark.parametrize(("size", "dtype"), [(2, np.uint8), (256, np.uint8), (257, np.uint16), (65_537, np.uint32)])
def test_ids_have_the_smallest_type_that_can_represent_them(size, dtype):
    characters = [chr(0x10000 + i) for i in range(size)]
    vocabulary = Vocabulary(characters)
    ids = vocabulary.encode("".join(characters))
    assert ids.dtype == vocabulary.dtype == dtype
    assert np.array_equal(ids, np.arange(size))


@pytest.mark.parametrize("unknown", ["z", "B", "~", "é", "€", "🙂", "\U0010ffff", "\0"])
def test_the_error_for_an_unknown_character_gives_the_character_and_its_position(unknown):
    with pytest.raises(UnknownCharacterError) as error:
        Vocabulary("abc").encode(f"abca{unknown}b{unknown}")
    assert f"{unknown!r} (U+{ord(unknown):04X}) is not in the vocabulary (character 5 of the text)" in str(error.value)


@pytest.mark.parametrize(
    ("known", "unknown", "instead"),
    [
        ("a'b", CURLY, "'"),
        (f"a{CURLY}", "'", CURLY),
        ("a-", "\N{EM DASH}", "-"),
        ("a ", "\t", " "),
        ("a ", "\xa0", " "),
    ],
)
def test_the_error_advises_a_known_character_that_looks_like_the_unknown_one(known, unknown, instead):
    with pytest.raises(UnknownCharacterError, match=f"; write {re.escape(repr(instead))} instead$"):
        Vocabulary(known).encode(f"a{unknown}")
    with pytest.raises(UnknownCharacterError) as error:
        Vocabulary("abc").encode(unknown)
    assert "instead" not in str(error.value)
    assert Vocabulary(known + unknown).look_alikes.keys().isdisjoint(known + unknown)
