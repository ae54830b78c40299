import ast
import re
import runpy

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
from textbook.exercise.check import NAMES, SIZES, draw_arguments, fault

SOLUTION = (ROOT / "textbook/exercise/solution.py").read_text(encoding="utf-8")
NAMED = [
    ("average_of_the_past", "tril / tril.sum(dim=1, keepdim=True) @ x", "x.mean(1, True) + 0 * x", "the mean of all"),
    ("average_of_the_past", "tril.sum(dim=1, keepdim=True)", "T", "divided by T at all positions"),
    ("masked_softmax", "softmax(dim=-1)", "softmax(dim=-2)", "the softmax runs over the queries"),
    ("masked_softmax", '.masked_fill(~visible, float("-inf")).softmax(dim=-1)', ".softmax(-1) * visible", "after"),
    ("masked_softmax", "(~visible", "(visible", "the other way round"),
    ("masked_softmax", 'float("-inf")', "0", "They need -inf"),
    ("head", "x @ query_map, x @ key_map", "x @ key_map, x @ query_map", "transposed: K Q^T"),
    ("head", "q.size(-1) ** 0.5", "q.size(-1)", "divided by D, not by"),
    ("head", "/ q.size(-1)", "* q.size(-1)", "multiplied by sqrt(D)"),
    ("head", "q.size(-1) ** 0.5", "x.size(-1) ** 0.5", "divided by sqrt(C)"),
    ("head", "torch.tril(torch", "torch.triu(torch", "triu in place of tril"),
    ("head", "ones(T, T)) == 1", "ones(T, T), 1) == 1", "a position sees the one after it"),
    ("head", "ones(T, T)) == 1", "ones(T, T), -1) == 1", "a position does not see itself"),
    ("split_heads", "x.reshape(B, T, n_head, width // n_head).transpose(1, 2)", "x.view(B, n_head, T, -1)", "T and H"),
    ("join_heads", "x.transpose(1, 2).reshape", "x.reshape", "T and H"),
    ("multi_head", "return join_heads(", "return (lambda y: y.reshape(x.shape))(", "joined without transposing"),
    ("multi_head", " @ output_map", "", "the last map is missing"),
    ("multi_head", " / q.size(-1) ** 0.5", "", "not divided by sqrt(D)"),
    ("multi_head", "q.size(-1) ** 0.5", "x.size(-1) ** 0.5", "divided by sqrt(C)"),
    ("multi_head", "q.size(-1) ** 0.5", "x.size(1) ** 0.5", "divided by sqrt(T)"),
    ("cross_attention", "== 1", ">= 0", "nothing is hidden"),
    ("split_heads", "n_head, width // n_head).transpose(1, 2)", "-1, n_head).permute(0, 3, 1, 2)", "every H-th"),
    ("masked_softmax", ".softmax(dim=-1)", "", "the softmax is missing"),
    ("bigram_loss", "return -log_p", "return log_p", "the sign is wrong"),
    ("bigram_loss", ".mean()", ".mean() / torch.tensor(2.0).log()", "in bits"),
    ("bigram_loss", "mean()", "sum()", "it is a sum"),
    ("bigram_loss", "ids[:-1], ids[1:]", "ids[1:], ids[:-1]", "the rows are the second of each pair"),
    ("bigram_loss", "ids[:-1], ids[1:]", "ids[:-1], ids[:-1]", "each character predicts itself"),
    ("bigram_loss", ".mean()", ".sum() / len(ids)", "n - 1 pairs"),
    ("bigram_loss", "log_softmax", "softmax", "mean of -p"),
    ("average_of_the_past", "dim=1, keepdim=True", "dim=1", "needs keepdim=True"),
    ("average_of_the_past", "torch.tril(", "torch.triu(", "triu in place of tril"),
    ("average_of_the_past", "ones(T, T))", "ones(T, T), -1)", "only those before"),
    ("masked_softmax", 'float("-inf")', "-1", "the score -1"),
    ("multi_head", "q.size(-1) ** 0.5", "n_head ** 0.5", "divided by sqrt(H)"),
    ("multi_head", "@ output_map", "@ output_map.T", "the last map is transposed"),
    (
        "multi_head",
        "split_heads(x @ one_map, n_head)",
        "(x @ one_map).unflatten(-1, (-1, n_head)).permute(0, 3, 1, 2)",
        "every H-th channel",
    ),
    ("head", "masked_softmax(scores, visible)", "scores.where(visible, -torch.inf).softmax(1)", "over the queries"),
]
DESCRIBED = [  # mistakes that have no name
    ("average_of_the_past", "tril / tril.sum(dim=1, keepdim=True) @ x", "x"),
    ("masked_softmax", ".softmax(dim=-1)", ".softmax(dim=-1).softmax(dim=-1)"),
    ("head", "visible) @ v", "visible) @ k"),
    ("split_heads", "transpose(1, 2)", "transpose(1, 2).flip(1)"),
    ("join_heads", "x.transpose(1, 2)", "x.permute(0, 2, 3, 1)"),
    ("multi_head", "@ output_map", "@ output_map + x"),
    ("cross_attention", "memory @ value_map", "memory @ key_map"),
    ("cross_attention", "padding_mask[:, None, :]", "padding_mask[:1, None, :]"),
    ("bigram_loss", "log_softmax(dim=-1)", "log_softmax(dim=0)"),
]


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


@pytest.mark.parametrize("name", NAMES)
def test_a_right_function_is_right_and_an_empty_one_is_not_written_yet(name, tmp_path, monkeypatch):
    assert fault(solved()[name], name) == ""
    monkeypatch.chdir(tmp_path)
    assert textbook(["--exercise"]) == 0
    assert fault(runpy.run_path("attention_exercise.py")[name], name) == "is not written yet."


def shown(answer, name):
    """Return the input that an answer shows, what came out and what should have, as tensors.

    A long tensor is shown by its shape; it is that of the first sizes.
    """
    given, came_out, right = re.fullmatch(
        r"is wrong. For\n(.*)\nit returns\n(.*)\nnot\n(.*)", answer, re.DOTALL
    ).groups()
    whole = {"n_head": int, "padding_mask": torch.tensor, "ids": torch.tensor, "visible": torch.tensor}
    arguments = []
    for line, drawn in zip(given.splitlines(), draw_arguments(name, *SIZES[0]), strict=True):
        name, value = line.split(" = ")
        if value.startswith("a tensor"):
            assert value == f"a tensor of the shape {tuple(drawn.shape)}"
            arguments.append(drawn)
        else:
            read = whole.get(name, lambda x: torch.tensor(x, dtype=torch.float))
            arguments.append(read(ast.literal_eval(value)))
    return arguments, *(torch.tensor(eval(y, {"nan": float("nan"), "inf": float("inf")})) for y in (came_out, right))


@pytest.mark.parametrize(("name", "old", "new", "sentence"), NAMED)
def test_a_typical_mistake_is_named(name, old, new, sentence):
    answer, _, named = fault(solved(name, old, new)[name], name).partition("\nExactly this comes out if ")
    assert shown(answer, name)
    assert sentence in named


@pytest.mark.parametrize(("name", "old", "new"), DESCRIBED)
def test_another_mistake_is_shown_with_an_input_what_came_out_and_what_should_have(name, old, new):
    wrong = solved(name, old, new)[name]
    arguments, came_out, right = shown(fault(wrong, name), name)
    for y, function in ((came_out, wrong), (right, solved()[name])):
        torch.testing.assert_close(y.float(), function(*arguments).float(), atol=5.1e-5, rtol=0, equal_nan=True)


def test_a_function_that_is_right_only_for_the_first_sizes_is_wrong():
    for name in NAMES:
        for known in range(1, len(SIZES)):
            calls, right = [], solved()[name]

            def with_a_limit(*arguments, calls=calls, right=right, known=known):
                calls.append(arguments)
                return right(*arguments) + (len(calls) > known)

            answer = fault(with_a_limit, name)
            assert all(len(re.findall(r"[\d.]+|True|False", line)) <= 30 for line in answer.splitlines())
            came_out, instead = re.search(r"it returns\n(.*)\nnot\n(.*)", answer).groups()
            differences = torch.tensor(ast.literal_eval(came_out)) - torch.tensor(ast.literal_eval(instead))
            torch.testing.assert_close(differences, torch.ones_like(differences), atol=2e-4, rtol=0)


def test_a_function_may_change_its_arguments():
    in_place = solved("masked_softmax", "scores.masked_fill(", "scores.masked_fill_(")["masked_softmax"]
    assert fault(in_place, "masked_softmax") == ""
    shown_arguments, *_ = shown(fault(lambda *given: 2 * in_place(*given), "masked_softmax"), "masked_softmax")
    expected = [*draw_arguments("masked_softmax", *SIZES[0])]
    torch.testing.assert_close(shown_arguments, expected, check_dtype=False)


def test_a_loss_may_be_a_python_number():
    assert fault(solved("bigram_loss", ".mean()", ".mean().item()")["bigram_loss"], "bigram_loss") == ""
    assert "is wrong" in fault(solved("bigram_loss", ".mean()", ".sum().item()")["bigram_loss"], "bigram_loss")


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
    answer = fault(solved("head", old, new)["head"], "head", "<string>")
    assert answer.startswith(expected)
    assert "Exactly" not in answer


def test_the_exercise_is_written_once_and_checked_up_to_the_first_function_that_is_not_right(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert textbook(["--exercise"]) == 0
    file = tmp_path / "attention_exercise.py"
    command = to_paste("textbook", "--check", "attention_exercise.py")
    written = file.read_text(encoding="utf-8")
    assert written.startswith('"""Write attention yourself')
    assert f"\n    {command}\n" in written
    for function in ast.parse(written).body[2:]:
        _docstring, code = function.body
        assert ast.unparse(code) == "raise NotImplementedError"
    file.write_text(SOLUTION.replace("masked_fill(~visible", "masked_fill(visible"), encoding="utf-8")
    assert textbook(["--exercise"]) == 2
    printed = capsys.readouterr()
    assert printed.out.startswith(f"Wrote {file}\n")
    assert printed.out.endswith(f"run {command}\n")
    assert printed.err.startswith("textbook: attention_exercise.py is there already")
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
