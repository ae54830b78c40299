import re

import pytest

from textbook.__main__ import main as textbook
from textbook.exercise.check import TEMPLATE, fault
from textbook.exercise.exercises import EXERCISES

SOLUTION = """
import torch
import torch.nn.functional as F


def average_of_the_past(x):
    return x.cumsum(1) / torch.arange(1, x.size(1) + 1)[:, None]


def masked_softmax(scores, visible):
    e = scores.exp() * visible
    return e / e.sum(-1, keepdim=True)


def head(x, query_map, key_map, value_map):
    q, k, v = x @ query_map, x @ key_map, x @ value_map
    visible = torch.ones(x.size(1), x.size(1)).tril() == 1
    return masked_softmax(torch.einsum("btd,bsd->bts", q, k) / q.size(-1) ** 0.5, visible) @ v


def split_heads(x, n_head):
    return torch.stack(x.chunk(n_head, -1), dim=1)


def join_heads(x):
    return torch.cat(x.unbind(1), dim=-1)


def multi_head(x, query_map, key_map, value_map, output_map, n_head):
    maps = zip(*(m.chunk(n_head, 1) for m in (query_map, key_map, value_map)))
    return torch.cat([head(x, *three) for three in maps], dim=-1) @ output_map


def cross_attention(x, memory, padding_mask, query_map, key_map, value_map):
    q, k, v = x @ query_map, memory @ key_map, memory @ value_map
    return masked_softmax(q @ k.mT / q.size(-1) ** 0.5, padding_mask[:, None] == 1) @ v


def bigram_loss(table, ids):
    p = table.exp() / table.exp().sum(1, keepdim=True)
    return -sum(p[a, b].log() for a, b in zip(ids, ids[1:])) / (len(ids) - 1)
"""
NO_SCALE = ("q.size(-1) ** 0.5, visible", "1, visible")
TRIANGLE = ".tril() == 1"


def written(change=("", "")):
    """Return the functions of the solution with one change."""
    assert change[0] in SOLUTION
    functions = {}
    exec(SOLUTION.replace(*change), functions)
    return functions


@pytest.mark.parametrize("name", EXERCISES)
def test_a_right_function_is_right_and_an_empty_one_is_not_written_yet(name):
    assert fault(written()[name], EXERCISES[name]) == ""
    empty = {}
    exec(TEMPLATE.read_text(encoding="utf-8"), empty)
    assert fault(empty[name], EXERCISES[name]) == "is not written yet."


@pytest.mark.parametrize(
    ("name", "change", "named"),
    [
        ("average_of_the_past", (" / torch.arange(1, x.size(1) + 1)[:, None]", ""), "it is a sum"),
        (
            "average_of_the_past",
            ("x.cumsum(1) / torch.arange(1, x.size(1) + 1)[:, None]", "0 * x + x.mean(1, True)"),
            "the mean of all",
        ),
        ("masked_softmax", ("e.sum(-1,", "e.sum(-2,"), "the softmax runs over the queries"),
        (
            "masked_softmax",
            ("e / e.sum(-1, keepdim=True)", "e / scores.exp().sum(-1, keepdim=True)"),
            "after the softmax",
        ),
        ("masked_softmax", (" * visible", " * ~visible"), "the other way round"),
        ("head", NO_SCALE, "not divided by sqrt"),
        ("head", ("btd,bsd->bts", "btd,bsd->bst"), "transposed: K Q^T"),
        ("head", (TRIANGLE, ".tril(1) == 1"), "a position sees the one after it"),
        ("head", (TRIANGLE, ".tril(-1) == 1"), "does not see itself"),
        ("head", (TRIANGLE, " == 1"), "nothing is hidden"),
        (
            "split_heads",
            ("torch.stack(x.chunk(n_head, -1), dim=1)", "x.view(len(x), n_head, x.size(1), -1)"),
            "Transpose the axes",
        ),
        ("join_heads", ("torch.cat(x.unbind(1), dim=-1)", "x.reshape(len(x), x.size(2), -1)"), "Transpose the axes"),
        (
            "multi_head",
            (
                "torch.cat([head(x, *three) for three in maps], dim=-1)",
                "torch.stack([head(x, *three) for three in maps], 1).reshape(x.shape)",
            ),
            "joined without transposing",
        ),
        ("multi_head", (", dim=-1) @ output_map", ", dim=-1)"), "the last map is missing"),
        ("multi_head", NO_SCALE, "not divided by sqrt"),
        ("multi_head", ("q.size(-1) ** 0.5, visible", "x.size(-1) ** 0.5, visible"), "divided by sqrt(C)"),
        ("cross_attention", ("padding_mask[:, None] == 1", "padding_mask[:, None] >= 0"), "nothing is hidden"),
        ("cross_attention", ("padding_mask[:, None] == 1", "padding_mask[:, None] == 0"), "the other way round"),
        ("bigram_loss", (" / (len(ids) - 1)", ""), "it is a sum"),
        ("bigram_loss", ("zip(ids, ids[1:])", "zip(ids[1:], ids)"), "the second of each pair"),
        ("bigram_loss", ("zip(ids, ids[1:])", "zip(ids[:-1], ids[:-1])"), "predicts itself"),
    ],
)
def test_a_typical_mistake_is_named(name, change, named):
    answer = fault(written(change)[name], EXERCISES[name])
    assert re.match(
        r"returns \S+ at \[[\d, ]*\], not -?\d\.\d{4} \(arguments: .*\)\. Exactly this comes out if ", answer
    )
    assert named in answer.partition(" if ")[2]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("visible) @ v", "visible)"), "returns the shape (2, 4, 4), not (2, 4, 3) (arguments: (2, 4, 6), "),
        (("visible) @ v", "visible) @ v * 2"), "returns "),
        (("visible) @ v", "visible) @ w"), "stops in line 18: NameError: name 'w' is not defined (arguments: "),
        (("return masked_softmax(torch", "return [q]; (torch"), "returns list, not a tensor."),
        (("* visible", "* visible * 2"), ""),  # the factor cancels
    ],
)
def test_another_wrong_answer_is_described(change, expected):
    answer = fault(written(change)["head"], EXERCISES["head"], "<string>")
    assert answer.startswith(expected) and bool(answer) == bool(expected)
    assert "Exactly" not in answer


def test_the_exercise_is_written_once_and_checked_up_to_the_first_function_that_is_not_right(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert textbook(["--exercise"]) == 0
    file = tmp_path / "attention_exercise.py"
    assert file.read_text(encoding="utf-8") == TEMPLATE.read_text(encoding="utf-8")
    file.write_text(SOLUTION.replace(*NO_SCALE), encoding="utf-8")
    assert textbook(["--exercise"]) == 2
    printed = capsys.readouterr()
    assert printed.out.endswith("run python -m textbook --check attention_exercise.py\n")
    assert printed.err.startswith("textbook: attention_exercise.py is there already")
    assert textbook(["--check", file.name]) == 1
    names, said = list(EXERCISES), capsys.readouterr().out
    assert said.startswith(f"{names[0]} is right.\n{names[1]} is right.\n{names[2]} returns ")
    file.write_text(SOLUTION, encoding="utf-8")
    assert textbook(["--check", file.name]) == 0
    assert capsys.readouterr().out.startswith("".join(f"{name} is right.\n" for name in names))


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (None, "No such file or directory"),
        ("x = 1\ndef f(:", "line 2: invalid syntax"),
        ("import nowhere", "the file stops in line 1: ModuleNotFoundError: No module named 'nowhere'"),
        (SOLUTION.replace("def head", "def heat"), "head is missing"),
        ("while True:\n    pass", "the file has not ended after 1 s: look for an endless loop"),
        (SOLUTION.replace("q, k, v =", "while True: pass;"), "head has not ended after 1 s: look for an endless loop"),
        (SOLUTION.replace("q, k, v =", "__import__('os')._exit(0);"), "head ended Python itself"),
    ],
)
def test_a_file_that_cannot_be_checked_is_one_line(code, message, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("textbook.exercise.check.SECONDS", 1)
    file = tmp_path / "mine.py"
    if code:
        file.write_text(code, encoding="utf-8")
    assert textbook(["--check", str(file)]) == 2
    assert capsys.readouterr().err == f"textbook: {file}: {message}\n"
