import filecmp
import math
import re
from itertools import chain, combinations, pairwise

import matplotlib
import numpy as np
import pytest
import torch
from helpers import assert_mistake
from matplotlib.figure import Figure

from textbook.__main__ import CHAPTERS, written
from textbook.__main__ import main as textbook


def test_without_a_number_the_textbook_lists_its_chapters_in_order(capsys):
    assert textbook([]) == 0
    *lines, _, last = capsys.readouterr().out.splitlines()
    rows = lines[: len(CHAPTERS)]
    assert [re.fullmatch(r"Chapter (\d): .*", row)[1] for row in rows] == [str(n + 1) for n in range(len(CHAPTERS))]
    assert last.endswith("python -m textbook 1")


@pytest.mark.parametrize("number", [*range(1, 7), pytest.param(7, marks=pytest.mark.slow), 8, 9])
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
        (["3", "--output", "head.xyz"], "head.xyz: end the name of the picture with .png, .svg, .pdf"),
        (["6", "--output", "bigram.png"], "chapter 6 has nothing to draw"),
        (["3", "--output", "nowhere/head.png"], "nowhere: no such folder"),
        (["6", "--corpus", "nowhere.txt"], r".*nowhere.txt: no such file.*"),
    ],
)
def test_a_mistake_is_one_line(arguments, message, capsys):
    try:
        assert textbook(arguments) == 2
    except SystemExit as error:
        assert error.code == 2
    printed = capsys.readouterr()
    assert re.fullmatch(f"textbook: {message}\n", printed.err)
    assert "--output" not in arguments or printed.out == ""  # nothing is shown or trained before


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
@pytest.mark.parametrize("number", ("1", "2", "3", "4", "5", "8", "9", "ladder"))
def test_a_chapter_is_drawn(number, tmp_path, capsys):
    shorter = ["--steps", "1"] if number in ("8", "ladder") else []
    assert textbook([number, *shorter, "--output", str(tmp_path / "out.png")]) == 0
    assert capsys.readouterr().out.endswith("out.png\n")
    content = (tmp_path / "out.png").read_bytes()
    assert content.startswith(b"\x89PNG\r\n")
    assert int.from_bytes(content[16:20]) > 1000


@pytest.mark.slow
def test_the_users_settings_of_matplotlib_do_not_change_a_picture(tmp_path, capsys):
    first, second = str(tmp_path / "first.png"), str(tmp_path / "second.png")
    assert textbook(["1", "--output", first]) == 0
    with matplotlib.rc_context({"text.usetex": True, "savefig.bbox": "tight", "lines.linewidth": 9}):
        assert textbook(["1", "--output", second]) == 0
    assert filecmp.cmp(first, second, shallow=False)


def test_weights_of_many_heads_are_a_picture_of_tenths_with_names_for_rows_and_columns():
    weights = torch.zeros(3, 4, 4)
    weights[0], weights[1, :, 1], weights[2, 3] = (
        torch.tensor([1.0, 0, 0, 0]),
        0.999,
        torch.tensor([0.09, 0.1, 0.58, 0]),
    )
    rows = "        abcd   abcd   abcd   abcd\n  x     9...   9...   9...   9...\n  yes   .9..   .9..   .9..   .9..\n"
    expected = f"Weights, in tenths\n{rows}  z     ....   ....   ....   .15.\n"
    assert written("Weights", weights, (("x", "yes", "z"), 4 * "abcd")) == expected


@pytest.fixture
def axes(monkeypatch):
    """Return a function that draws a chapter and returns the visible axes of its figure."""

    def draw(number):
        figures = []
        monkeypatch.setattr(Figure, "savefig", lambda figure, path, **options: figures.append(figure))
        assert textbook([str(number), "--output", "never_written.png"]) == 0
        return [axis for axis in figures[0].axes if axis.get_title() or axis.images or axis.lines]

    return draw


@pytest.mark.parametrize("number", (1, 3, 4, 5))
def test_a_drawn_matrix_has_its_numbers_in_their_cells(number, axes, capsys):
    shown = [item for item in CHAPTERS[number - 1].show() if not isinstance(item, str)]
    for axis, (title, matrix, _) in zip(axes(number), shown, strict=True):
        matrix = matrix.flatten(1)
        assert re.sub(r"\s+", " ", axis.get_title()) == re.sub(r"\s+", " ", title)
        torch.testing.assert_close(
            torch.tensor(axis.images[0].get_array().filled(-math.inf)), matrix, check_dtype=False
        )
        cells = {text.get_position()[::-1]: float(text.get_text()) for text in axis.texts}
        assert len(cells) == (matrix.numel() if matrix.numel() <= 80 else 0)
        for place, cell in cells.items():
            assert cell == pytest.approx(matrix[place].item(), rel=0.005)


@pytest.mark.parametrize("number", (1, 3, 4, 5))
def test_drawn_matrices_have_names_for_rows_and_columns_and_share_one_scale_on_a_full_page(number, axes, capsys):
    panels = axes(number)
    rows, columns = panels[0].get_gridspec().get_geometry()
    assert len(panels) == rows * columns
    (scale,) = {(axis.images[0].norm.vmin, axis.images[0].norm.vmax) for axis in panels}
    assert scale == (0, max(axis.images[0].get_array().max() for axis in panels))
    assert panels[0].figure.axes[-1].get_ylim() == pytest.approx(scale)  # of the bar that explains the colours
    for axis in panels:
        shape = axis.images[0].get_array().shape
        for side, n in zip((axis.yaxis, axis.xaxis), shape, strict=True):
            labels = [label.get_text() for label in side.get_ticklabels()]
            assert side.get_ticklocs().tolist() == [*range(n)]
            assert labels == ([str(i + 1) for i in range(n)] if side.get_label_text() else labels)
            assert all(labels)
    if number == 3:
        (weights,) = [axis for axis in panels if axis.get_title().startswith("weights")]
        for side in (weights.yaxis, weights.xaxis):
            assert [label.get_text() for label in side.get_ticklabels()] == ["cats", "chase", "mice"]


def test_the_drawn_fits_of_chapter_9_are_sums_of_weighted_examples(axes, capsys):
    pairs = axes(9)  # and three bars of colours
    for above, below in zip(pairs[0:3], pairs[3:6], strict=True):
        examples, truth, fit = above.lines
        assert [line.get_label() for line in above.lines] == ["examples", "true function", "attention"]
        x, xs, ys = fit.get_xdata(), examples.get_xdata(), examples.get_ydata()
        kind, w = above.get_title().partition(", ")[0], float(re.search(r"w = ([\d.]+)", above.get_title())[1])
        u = (np.array(x)[:, None] - np.array(xs)) * w
        weights = np.maximum(1 - u**2, 0) if kind == "Epanechnikov" else np.exp(-(u**2) / 2)
        weights /= weights.sum(axis=1, keepdims=True)
        assert np.array(below.images[0].get_array()) == pytest.approx(weights, abs=0.005)
        assert np.array(fit.get_ydata()) == pytest.approx(weights @ np.array(ys), abs=0.01)
        assert np.array(truth.get_ydata()) == pytest.approx(2 * np.sin(x) + np.array(x) ** 0.8)


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
