import re
from functools import partial

import pytest
from exercise_solution import SOLUTION

from cli.hints import to_paste
from textbook.__main__ import main as textbook
from textbook.exercise.check import TEMPLATE, fault
from textbook.exercise.exercises import EXERCISES

MISTAKES = [
    ("average_of_the_past", "x.cumsum(1) /", "x.mean(1, True) + 0 *", "the mean of all"),
    ("masked_softmax", "e.sum(-1,", "e.sum(-2,", "the softmax runs over the queries"),
    ("masked_softmax", "e / e.sum(-1,", "e / scores.exp().sum(-1,", "the mask comes after the softmax"),
    ("masked_softmax", "* visible", "* ~visible", "the other way round"),
    ("head", "btd,bsd->bts", "btd,bsd->bst", "transposed: K Q^T"),
    ("masked_softmax", "scores.exp() * visible", "(scores * visible).exp()", "They need -inf"),
    ("average_of_the_past", "torch.arange(1, x.size(1) + 1)[:, None]", "x.size(1)", "divided by T at all positions"),
    ("head", "q.size(-1) ** 0.5, visible", "q.size(-1), visible", "divided by D, not by"),
    ("head", ".tril() == 1", ".triu() == 1", "triu in place of tril"),
    ("head", ".tril() == 1", ".tril(1) == 1", "a position sees the one after it"),
    ("head", ".tril() == 1", ".tril(-1) == 1", "a position does not see itself"),
    ("split_heads", "torch.stack(x.chunk(n_head, -1), dim=1)", "x.view(len(x), n_head, x.size(1), -1)", "T and H"),
    ("join_heads", "torch.cat(x.unbind(1), dim=-1)", "x.reshape(len(x), x.size(2), -1)", "T and H"),
    ("multi_head", "for three in maps], dim=-1)", "for three in maps], 1).view(x.shape)", "joined without transposing"),
    ("multi_head", ", dim=-1) @ output_map", ", dim=-1)", "the last map is missing"),
    ("multi_head", "q.size(-1) ** 0.5, visible", "1, visible", "not divided by sqrt(D)"),
    ("multi_head", "q.size(-1) ** 0.5, visible", "x.size(-1) ** 0.5, visible", "divided by sqrt(C)"),
    ("cross_attention", "padding_mask[:, None] == 1", "padding_mask[:, None] >= 0", "nothing is hidden"),
    ("bigram_loss", " / (len(ids) - 1)", "", "it is a sum"),
    ("bigram_loss", "zip(ids, ids[1:])", "zip(ids[1:], ids)", "the rows are the second of each pair"),
    ("bigram_loss", "zip(ids, ids[1:])", "zip(ids[:-1], ids[:-1])", "each character predicts itself"),
]


def solved(old="", new=""):
    """Return the functions of the solution with one change."""
    assert old in SOLUTION
    functions = {}
    exec(SOLUTION.replace(old, new), functions)
    return functions


@pytest.mark.parametrize("name", EXERCISES)
def test_a_right_function_is_right_and_an_empty_one_is_not_written_yet(name):
    assert fault(solved()[name], EXERCISES[name]) == ""
    empty = {}
    exec(TEMPLATE.read_text(encoding="utf-8"), empty)
    assert fault(empty[name], EXERCISES[name]) == "is not written yet."


@pytest.mark.parametrize(("name", "old", "new", "named"), MISTAKES)
def test_a_typical_mistake_is_named(name, old, new, named):
    start, _, sentence = fault(solved(old, new)[name], EXERCISES[name]).partition(" Exactly this comes out if ")
    assert re.fullmatch(r"returns \S+( at \[[\d, ]*\])?, not -?\d\.\d{4} \(shapes: .*\)\.", start)
    assert named in sentence


@pytest.mark.parametrize(
    ("name", "sentence"), [(name, sentence) for name, exercise in EXERCISES.items() for sentence in exercise.mistakes]
)
def test_no_two_mistakes_are_confused(name, sentence):
    exercise = EXERCISES[name]
    mistaken = partial(exercise.right, **exercise.mistakes[sentence])
    assert fault(mistaken, exercise).endswith(f" Exactly this comes out if {sentence}")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("visible) @ v", "visible)", "returns the shape (2, 4, 4), not (2, 4, 3) (shapes: (2, 4, 6), "),
        ("visible) @ v", "visible) @ v * 2", "returns "),
        ("visible) @ v", "visible) @ v / 0 * 0", "returns nan at [0, 0, 0], not "),
        ("visible) @ v", "visible) @ w", "stops in line 15: NameError: name 'w' is not defined (shapes: "),
        ("value_map):", "value_map, w):", "stops: TypeError: head() missing 1 required positional argument: 'w' ("),
        ("return masked_softmax(torch", "return [q]; (torch", "returns list, not a tensor."),
        ("* visible", "* visible * 2", ""),  # the factor cancels
    ],
)
def test_another_wrong_answer_is_described(old, new, expected):
    answer = fault(solved(old, new)["head"], EXERCISES["head"], "<string>")
    assert answer.startswith(expected) and bool(answer) == bool(expected)
    assert "Exactly" not in answer


def test_the_exercise_is_written_once_and_checked_up_to_the_first_function_that_is_not_right(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert textbook(["--exercise"]) == 0
    file = tmp_path / "attention_exercise.py"
    assert file.read_text(encoding="utf-8") == TEMPLATE.read_text(encoding="utf-8")
    file.write_text(SOLUTION.replace("* visible", "* 1"), encoding="utf-8")
    assert textbook(["--exercise"]) == 2
    printed = capsys.readouterr()
    assert printed.out.endswith(f"run {to_paste('textbook', '--check', 'attention_exercise.py')}\n")
    assert printed.err.startswith("textbook: attention_exercise.py is there already")
    assert textbook(["--check", file.name]) == 1
    assert capsys.readouterr().out.startswith("average_of_the_past is right.\nmasked_softmax returns ")
    with_the_lowest_score = "scores.masked_fill(visible == 0, -1e9).softmax(-1)"  # right, too
    file.write_text(SOLUTION.replace("e / e.sum(-1, keepdim=True)", with_the_lowest_score), encoding="utf-8")
    assert textbook(["--check", file.name]) == 0
    assert capsys.readouterr().out.startswith("".join(f"{name} is right.\n" for name in EXERCISES))


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
