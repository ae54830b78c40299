"""Each chapter ends with a question that a change of one line answers; the next chapter has the answer."""

import inspect
from itertools import pairwise

import pytest

from textbook.__main__ import PARTS, written


def printed(number, old="", new=""):
    source = inspect.getsource(PARTS[number])
    assert source.count(old) == 1 or not old
    chapter = {"__name__": "changed", "__file__": PARTS[number].__file__}
    exec(source.replace(old, new), chapter)
    return "\n".join(item if isinstance(item, str) else written(*item) for item in chapter["show"]())


def test_each_chapter_ends_with_a_question_and_the_next_part_begins_with_its_answer():
    for (number, chapter), (_, following) in pairwise(PARTS.items()):
        assert chapter.__doc__.split("\n\n")[-2].startswith("Question: ")
        assert following.__doc__.split("\n\n")[1].startswith(f"Answer to the question of chapter {number}: ")


@pytest.mark.parametrize(
    ("number", "old", "new", "before", "after"),
    [
        ("2", "x = torch.tensor([E", "x = 2 * torch.tensor([E", "0.72 cat + 0.26 walks", "0.98 cat + 0.02 walks"),
        ("3", "scores = raw / k.size(-1) ** 0.5", "scores = raw", "0.755 V_chase", "0.881 V_chase"),
        ("4", "[[0], [2], [4]])", "[[0], [2, 3], [4]])", "0  0  0  0  1      0  0  1", "0.5000  0.5000  0.0000"),
        ("5", "[0, 1, 1, 0]]), ", "[1, 1, 1, 0]]), ", "key\n  0.0000  0.0000", "key\n  1.0000  0.0000"),
        ("6", "\nLR = 20\n", "\nLR = 150\n", "validation loss 2.3413", "validation loss 2.4699"),
        (
            "9",
            'gaussian_kernel)\n    yield "x - x_i',
            'gaussian_kernel, w=3.0)\n    yield "x - x_i',
            "3.9928",
            "4.9780",
        ),
    ],
)
def test_an_answer_is_what_the_changed_chapter_prints(number, old, new, before, after):
    right, changed = printed(number), printed(number, old, new)
    if number == "5":
        right, changed = (text.replace("key  (4, 4)", "key") for text in (right, changed))
    assert before in right and before not in changed
    assert after in changed and after not in right


def test_equal_scores_of_1_have_the_weights_of_equal_scores_of_0():
    changed = printed("1", "zeros_like(v", "ones_like(v").partition("weights = softmax")
    assert changed[2] == printed("1").partition("weights = softmax")[2] and "  1  -inf" in changed[0]
