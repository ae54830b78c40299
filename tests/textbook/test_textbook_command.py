import math
import re
from itertools import chain, combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import assert_mistake
from matplotlib.figure import Figure

from textbook.__main__ import CHAPTERS, written
from textbook.__main__ import main as textbook
from textbook.chapter9_scores import draw, examples_and_kernels, pooling


def test_without_a_number_the_textbook_lists_its_chapters_in_order(capsys):
    assert textbook([]) == 0
    *lines, _, last = capsys.readouterr().out.splitlines()
    rows = lines[: len(CHAPTERS)]
    assert [re.fullmatch(r"Chapter (\d): .*", row)[1] for row in rows] == [str(n + 1) for n in range(len(CHAPTERS))]
    assert last.endswith("python -m textbook 1")


@pytest.mark.parametrize("number", [*range(1, 7), 9, *(pytest.param(n, marks=pytest.mark.slow) for n in (7, 8))])
def test_every_chapter_is_shown_and_its_forms_agree(number, capsys):
    assert textbook([str(number), *(["--steps", "2"] if number in (7, 8) else [])]) == 0
    printed = capsys.readouterr().out
    assert "DIFFERENT" not in printed  # forms that should agree
    following = f"-m textbook {number + 1} " if number < len(CHAPTERS) else "-m textbook ladder "
    assert f"\nNext: python {following}" in printed
    lines = printed.partition("\nSample:")[0].splitlines()  # what a model writes can have any form
    assert [line for line in lines if re.search(r"-0(\.0*)?(?!\S)", line)] == []
    if number == 7:  # nats of a guess among the characters of the play
        loss = float(re.search(r"step 2/2  training loss (\S+)", printed)[1])
        assert loss == pytest.approx(math.log(60), abs=0.5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["10"], "there is no chapter 10; choose 1 to 9, or ladder"),
        (["3", "--steps", "5"], "chapter 3 has no --steps"),
        (["ladder", "--corpus", "x.txt"], "the ladder has no --corpus"),
        (["6", "--output", "bigram.png"], "chapter 6 has no --output"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_shown(arguments, message, capsys):
    assert_mistake(capsys, textbook, arguments, f"textbook: {message}")


OTHERS = (["--exercise"], ["--check", "mine.py"], ["--output", "x.png"], ["--steps", "1"], ["--corpus", "x.txt"])


@pytest.mark.parametrize(
    "given", [*combinations(OTHERS, 2), *([["8"], each] for each in OTHERS[:2]), *([each] for each in OTHERS[2:])]
)
def test_options_that_do_not_go_together_are_a_mistake_and_none_is_followed(given, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    line = assert_mistake(capsys, textbook, [*chain(*given)], "textbook: ")
    assert any(option in line for option, *_ in given)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.slow
@pytest.mark.parametrize("arguments", (["2"], ["9"], ["ladder", "--steps", "1"]))
def test_a_chapter_is_drawn(arguments, tmp_path, capsys):
    assert textbook([*arguments, "--output", str(tmp_path / "out.png")]) == 0
    assert capsys.readouterr().out.endswith("out.png\n")
    content = (tmp_path / "out.png").read_bytes()
    assert content.startswith(b"\x89PNG\r\n")
    assert int.from_bytes(content[16:20]) > 1000


def test_weights_of_heads_are_a_picture_of_tenths_with_names_for_rows_and_columns():
    weights = torch.tensor([[[1.0, 0, 0], [0, 0, 1]], [[0, 0.999, 0], [0.09, 0.1, 0.58]]])
    expected = "Weights, in tenths\n       abc  abc\n  x    9..  ..9\n  yes  .9.  .15\n"
    assert written("Weights", weights, ("x", "yes"), "abcabc") == expected


def test_the_drawn_fits_of_chapter_9_are_those_of_its_kernels(monkeypatch):
    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, **options: figures.append(figure))
    draw(Path("never_written.png"))
    xs, ys, x, kernels = examples_and_kernels()
    axes, n = figures[0].axes, len(kernels)
    for above, below, (name, (kernel, w)) in zip(axes[:n], axes[n : 2 * n], kernels.items(), strict=True):
        pooled = pooling(x, xs, ys, kernel, w=w)
        assert (above.get_title(), above.lines[2].get_label()) == (name, "attention")
        assert above.lines[2].get_ydata() == pytest.approx(pooled["prediction"].numpy())
        assert np.array(below.images[0].get_array()) == pytest.approx(pooled["weights"].numpy())


@pytest.fixture
def of_chapter_6(tmp_path, capsys):
    text = "abcabcabdabc" * 50
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    assert textbook(["6", "--corpus", str(tmp_path / "text.txt")]) == 0
    return text, capsys.readouterr().out


def test_the_bigram_loss_covers_every_validation_character(of_chapter_6):
    text, printed = of_chapter_6
    training = text[:540]
    assert re.search(r"\b4 x 4\b.*\b540\b", printed)  # scores, and characters that are counted
    for name, split in (("training", training), ("validation", text[539:])):
        total, n = 0.0, len(split) - 1
        for first, second in pairwise(split):
            n_pair = sum(training[i : i + 2] == first + second for i in range(539))
            total -= math.log2((n_pair + 1) / (training[:-1].count(first) + 4)) / n
        assert f"{name} loss {total * math.log(2):.4f} nats ({total:.3f} bits) over {n} characters" in printed


def test_the_table_that_descends_the_gradient_has_the_losses_of_float64_arithmetic(of_chapter_6):
    (text, printed), table, counts = of_chapter_6, np.zeros((4, 4)), {}
    for name, part in (("training", text[:540]), ("validation", text[539:])):
        counts[name] = np.zeros((4, 4))
        for first, second in pairwise(part):
            counts[name]["abcd".index(first), "abcd".index(second)] += 1 / (len(part) - 1)
    for step in range(1001):
        log_p = table - np.log(np.exp(table).sum(axis=1, keepdims=True))
        if step in (0, 10, 100, 1000):
            losses = [-np.sum(share * log_p) for share in counts.values()]
            assert "step {:5,}  training loss {:.4f}, validation loss {:.4f}\n".format(step, *losses) in printed
        shares = counts["training"]
        table -= 20 * (np.exp(log_p) * shares.sum(axis=1, keepdims=True) - shares)


@pytest.mark.nightly
def test_a_small_encoder_decoder_learns_to_reverse_strings(capsys):
    assert textbook(["8"]) == 0
    n, n_right = map(
        int, re.search(r", (\d+) were not in the training data\. (\d+) of", capsys.readouterr().out).groups()
    )
    assert n > 500
    assert n_right > 0.99 * n
