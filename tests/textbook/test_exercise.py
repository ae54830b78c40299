import ast
import contextlib
import math

import pytest
import torch
from conftest import ROOT
from torch.nn.functional import cross_entropy
from torch.nn.functional import scaled_dot_product_attention as attend

from cli.hints import to_paste
from model.attention import masked_softmax
from textbook.__main__ import main as textbook
from textbook.chapter1_average import average_by_loop
from textbook.chapter4_heads import join_heads, split_heads
from textbook.exercise import solution
from textbook.exercise.check import NAMES, SIZES, answer, draw_arguments, fault, near
from textbook.exercise.mistakes import MISTAKES, wrong_versions

SOLUTION = (ROOT / "textbook/exercise/solution.py").read_text(encoding="utf-8")


def solved(name="", old="", new=""):
    """Return the functions of the solution with a change in one of them."""
    start, place, rest = SOLUTION.partition(f"def {name}")
    assert old in rest.partition("\n\n\n")[0]
    functions = {}
    exec(start + place + rest.replace(old, new, 1), functions)
    return functions


def right_multi_head(x, query_map, key_map, value_map, output_map, n_head):
    maps = zip(*(big_map.chunk(n_head, dim=1) for big_map in (query_map, key_map, value_map)), strict=True)
    heads = [attend(*(x @ one_map for one_map in of_head), is_causal=True) for of_head in maps]
    return torch.cat(heads, dim=-1) @ output_map


def right_cross_attention(x, memory, padding_mask, query_map, key_map, value_map):
    return attend(x @ query_map, memory @ key_map, memory @ value_map, padding_mask[:, None].bool())


RIGHT = {
    "average_of_the_past": average_by_loop,
    "masked_softmax": lambda scores, visible: masked_softmax(scores, visible=visible),
    "head": lambda x, *maps: attend(*(x @ one_map for one_map in maps), is_causal=True),
    "split_heads": split_heads,
    "join_heads": join_heads,
    "multi_head": right_multi_head,
    "cross_attention": right_cross_attention,
    "bigram_loss": lambda table, ids: cross_entropy(table[ids[:-1]], ids[1:]),
}


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("name", NAMES)
def test_the_solution_is_right(name, sizes):
    arguments = draw_arguments(name, *sizes)
    torch.testing.assert_close(getattr(solution, name)(*arguments), RIGHT[name](*arguments), rtol=1e-4, atol=1e-4)


def attend_to_the_past(x, query_map, key_map, value_map, **options):
    return attend(x @ query_map, x @ key_map, x @ value_map, is_causal=True, **options)


@pytest.mark.parametrize(
    ("name", "wrong", "sentence"),
    [
        ("average_of_the_past", lambda x: x.cumsum(1), "it is a sum"),
        ("average_of_the_past", lambda x: x.mean(1, keepdim=True).expand_as(x), "has the mean of all"),
        ("masked_softmax", lambda scores, visible: (scores * visible).softmax(-1), "hidden keys have the score 0"),
        ("masked_softmax", lambda scores, visible: scores.where(visible, -torch.inf).softmax(1), "over the queries"),
        ("head", lambda x, *maps: attend_to_the_past(x, *maps, scale=1), "not divided by sqrt(D)"),
        ("head", lambda x, q, k, v: attend_to_the_past(x, k, q, v), "K Q^T in place of Q K^T"),
        ("split_heads", lambda x, n_head: x.view(len(x), n_head, x.size(1), -1), "Transpose the axes T and H"),
        ("multi_head", lambda x, *given: attend_to_the_past(x, *given[:3]) @ given[3], "attend as one head"),
        ("cross_attention", lambda x, memory, _, q, k, v: attend(x @ q, memory @ k, memory @ v), "nothing is hidden"),
        ("bigram_loss", lambda table, ids: cross_entropy(table[ids[:-1]], ids[1:], reduction="sum"), "it is a sum"),
        ("bigram_loss", lambda table, ids: cross_entropy(table[ids[:-1]], ids[1:]) / math.log(2), "it is in bits"),
    ],
)
def test_a_typical_mistake_is_named_whatever_its_code_is(name, wrong, sentence):
    assert sentence in fault(wrong, name).partition("\nExactly this comes out if ")[2]


def results(function, name):
    return torch.cat([answer(function, name, sizes).flatten() for sizes in SIZES[2:]])


def test_each_mistake_changes_a_function_and_no_two_change_one_to_the_same():
    have_an_effect = set()
    for name in NAMES:
        found = [results(getattr(solution, name), name)]
        for sentence, wrong in wrong_versions(name):
            with contextlib.suppress(NameError, RuntimeError):  # a mistake of other functions
                y = results(wrong, name)
                if not near(y, found[0], 1e-5):
                    assert not any(near(y, other, 1e-5) for other in found), (name, sentence)
                    found.append(y)
                    have_an_effect.add(sentence)
    assert have_an_effect == {sentence for *_, sentence in MISTAKES}


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("masked_softmax", ".softmax(dim=-1)", ".softmax(dim=-1).softmax(dim=-1)"),
        ("cross_attention", "padding_mask[:, None, :]", "padding_mask[:1, None, :]"),
        ("bigram_loss", "log_softmax(dim=-1)", "log_softmax(dim=0)"),
    ],
)
def test_another_mistake_is_found_too(name, old, new):
    found = fault(solved(name, old, new)[name], name)
    assert found.startswith("is wrong. For\n") and "Exactly" not in found


SHOWN = """is wrong. For
table = [[ 0.  1.  1.  0.]
         [ 1. -1.  1. -1.]
         [ 1.  1.  0. -1.]
         [-1. -1.  0. -1.]]
ids = [0 1 3 3 0 3 2 2 1 1]
it returns
0.3333
not
1.7466"""


def test_the_input_what_came_out_and_what_should_have_are_shown():
    assert fault(lambda table, ids: 1 / 3, "bigram_loss") == SHOWN


@pytest.mark.parametrize("n_right", range(1, len(SIZES)))
def test_a_function_that_is_right_only_for_the_first_sizes_is_wrong(n_right):
    calls = []
    found = fault(lambda x: calls.append(x) or solution.join_heads(x) + (len(calls) > n_right), "join_heads")
    assert found.startswith("is wrong. For\n")


def test_a_function_may_change_its_arguments_and_a_loss_be_a_python_number():
    for name, old, new in (("masked_softmax", "masked_fill(", "masked_fill_("), ("bigram_loss", "n()", "n().item()")):
        assert fault(solved(name, old, new)[name], name) == ""


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("visible) @ v", "visible)", "returns the shape (1, 4, 4), not (1, 4, 3) (shapes of the input: (1, 4, 6), "),
        ("visible) @ v", "visible) @ w", "stops in line 37: NameError: name 'w' is not defined (shapes of the input: "),
        ("value_map):", "value_map, w):", "stops: TypeError: head() missing 1 required positional argument: 'w' ("),
        ("return masked_softmax(", "return [q]; (", "returns list, not a tensor."),
        ("return masked_softmax(", "masked_softmax(", "returns NoneType, not a tensor. Is a return missing?"),
    ],
)
def test_an_answer_of_another_form_is_described(old, new, expected):
    assert fault(solved("head", old, new)["head"], "head", "<string>").startswith(expected)


def test_the_exercise_is_written_once_and_checked_up_to_the_first_function_that_is_not_right(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert textbook(["--exercise"]) == 0
    printed = capsys.readouterr().out
    file = tmp_path / "attention_exercise.py"
    command = to_paste("textbook", "--check", "attention_exercise.py")
    assert printed.startswith(f"Wrote {file}\n") and printed.endswith(f"run {command}\n")
    written = file.read_text(encoding="utf-8")
    assert written.startswith('"""Write attention yourself')
    assert f"\n    {command}\n" in written
    for function in ast.parse(written).body[2:]:
        _docstring, code = function.body
        assert ast.unparse(code) == "raise NotImplementedError"
    assert textbook(["--check", file.name]) == 1
    assert capsys.readouterr().out.endswith("average_of_the_past is not written yet.\n")
    file.write_text(SOLUTION.replace("masked_fill(~visible", "masked_fill(visible"), encoding="utf-8")
    assert textbook(["--exercise"]) == 2
    assert capsys.readouterr().err.startswith("textbook: attention_exercise.py is there already")
    assert textbook(["--check", file.name]) == 1
    assert capsys.readouterr().out.startswith("average_of_the_past is right.\nmasked_softmax is wrong. For\nscores = ")
    file.write_text(SOLUTION.replace('float("-inf")', "-1e9"), encoding="utf-8")  # right, too
    assert textbook(["--check", file.name]) == 0
    assert capsys.readouterr().out.startswith("".join(f"{name} is right.\n" for name in NAMES))


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (None, ": No such file or directory"),
        ("x = 1\ndef f(:", " stops: SyntaxError: invalid syntax (mine.py, line 2)"),
        ("import nowhere", " stops in line 1: ModuleNotFoundError: No module named 'nowhere'"),
        (SOLUTION.replace("def head", "def heat"), " has no function head"),
    ],
)
def test_a_file_that_cannot_be_checked_is_one_line(code, message, tmp_path, capsys):
    file = tmp_path / "mine.py"
    if code:
        file.write_text(code, encoding="utf-8")
    assert textbook(["--check", str(file)]) == 2
    assert capsys.readouterr().err == f"textbook: {file}{message}\n"
