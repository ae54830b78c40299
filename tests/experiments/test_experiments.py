import math
import re
from itertools import pairwise

import pytest
import torch
from conftest import ROOT
from helpers import run_python

from experiments.textbook import bigram, gpt, patches, picture, pooling
from experiments.textbook.__main__ import PARTS
from experiments.textbook.__main__ import main as textbook
from experiments.textbook.reversal import END, LONGEST, reversal_batch
from model.textbook.chapter6b_pooling import Kernel, epanechnikov_kernel, gaussian_kernel, pool
from model.textbook.chapter7a_bigram import Bigram


def run_module(name, *arguments, cwd):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        return run_python(["-m", f"experiments.{name}", *arguments], cwd=cwd)


def png_size(path):
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG\r\n")
    return int.from_bytes(content[16:20]), int.from_bytes(content[20:24])


def test_the_textbook_without_a_chapter_lists_them_in_order(capsys):
    assert textbook([]) == 0
    rows = [re.match(r"(\w+) +Chapter (\d)", line) for line in capsys.readouterr().out.splitlines()[: len(PARTS)]]
    assert [(row[1], int(row[2])) for row in rows] == [(name, number) for name, (number, _) in PARTS.items()]
    assert sorted({number for number, _ in PARTS.values()}) == list(range(1, 8))
    assert [row[2] for row in rows] == sorted(row[2] for row in rows)


def test_the_textbook_has_help_and_reports_a_mistake_in_one_line(capsys):
    with pytest.raises(SystemExit, match="0"):
        textbook(["--help"])
    assert capsys.readouterr().out.startswith("usage: experiments.textbook [-h]")
    with pytest.raises(SystemExit, match="2"):
        textbook(["--colour"])
    said = capsys.readouterr().err
    assert said == "experiments.textbook: unrecognized arguments: --colour; see experiments.textbook --help\n"
    assert textbook(["8"]) == 2
    assert capsys.readouterr().err.startswith("experiments.textbook: there is no chapter 8; choose 1 to 7, average, ")


@pytest.mark.parametrize("number", range(1, 8))
def test_a_chapter_by_its_number_shows_all_its_parts(number, capsys):
    assert textbook([str(number), "--steps", "2"]) == 0
    printed = capsys.readouterr().out
    parts = [name for name, (chapter, _) in PARTS.items() if chapter == number]
    assert printed.count("=" * 100) == len(parts)
    assert ("Next: " in printed) == (number < 7)
    assert not re.search(r": no$|ANOTHER", printed, re.MULTILINE)  # forms that should agree


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seconds", "0"], "argument --seconds: 0 must be a number above 0"),
        (["--seconds", "nan"], "argument --seconds: nan must be a number above 0"),
        (["--steps", "0"], "argument --steps: 0 must be a whole number, at least 1 and below 2^63"),
        (["--seed", "x"], "argument --seed: x must be a whole number, at least 0 and below 2^63"),
        (["--seed", str(2**63)], f"argument --seed: {2**63} must be a whole number, at least 0 and below 2^63"),
        (["--output", "."], "argument --output: . must be the name of a file"),
    ],
)
def test_errors_for_invalid_options_name_the_option(arguments, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        textbook(["1", *arguments])
    assert capsys.readouterr().err == f"experiments.textbook: {message}; see experiments.textbook --help\n"


@pytest.mark.parametrize("name", ["patches", "pooling"])
def test_a_format_that_matplotlib_does_not_write_is_a_mistake_of_the_user(tmp_path, capsys, name):
    pytest.importorskip("matplotlib")
    assert textbook([name, "--output", str(tmp_path / "picture.xyz")]) == 2
    said = capsys.readouterr().err
    assert f"{tmp_path}/picture.xyz: matplotlib does not write this format; end the name with ." in said
    assert said.count("\n") == 1


def test_the_picture_of_a_head_shows_numbers_that_follow_from_its_queries_and_keys(tmp_path, capsys):
    assert textbook(["head", "--output", str(tmp_path / "head.png")]) == 2
    assert "the picture of a head is an SVG file" in capsys.readouterr().err
    assert textbook(["head", "--output", str(tmp_path / "head.svg")]) == 0
    drawn = (tmp_path / "head.svg").read_text(encoding="utf-8")
    head = picture.example_head()
    n = len(picture.CHARACTERS)
    scores = [[float(q @ k) / math.sqrt(3) for k in head["K"]] for q in head["Q"]]
    expected = []
    for i in range(n):
        exponentials = [math.exp(s) for s in scores[i][: i + 1]]
        for j in range(i + 1):
            expected += [f"{scores[i][j]:.1f}", f"{exponentials[j] / sum(exponentials):.2f}"]
    numbers = re.findall(r'class="number">([^<]*)<', drawn)
    assert [number.replace(picture.MINUS, "-") for number in numbers] == expected
    assert drawn.count(f"{picture.MINUS}\N{INFINITY}") == n * (n - 1) / 2
    weights = expected[-2 * n - 7 : -2 * n : 2]  # of the framed row, the last but one
    terms = [f"{weight} · value of {c}" for weight, c in zip(weights, picture.CHARACTERS, strict=False)]
    assert f"Output of b = {' + '.join(terms)}<" in drawn


def test_the_picture_of_a_head_on_the_pages_is_the_one_that_the_command_draws(tmp_path):
    assert textbook(["head", "--output", str(tmp_path / "head.svg")]) == 0
    on_pages = ROOT / "experiments" / "studies" / "attention_picture.svg"
    assert (tmp_path / "head.svg").read_text(encoding="utf-8") == on_pages.read_text(encoding="utf-8")


def test_a_learned_kernel_predicts_left_out_examples_better_than_a_fixed_kernel():
    torch.manual_seed(1)
    xs = torch.sort(torch.rand(50, dtype=torch.float64) * 5).values
    ys = pooling.true_function(xs) + 0.3 * torch.randn(50, dtype=torch.float64)
    others = ~torch.eye(50, dtype=torch.bool)

    def error(kernel):
        return (pool(xs, xs, ys, kernel, visible=others) - ys).square().mean().item()

    learned = error(pooling.fit_width(xs, ys))
    best = min(error(Kernel(gaussian_kernel, w)) for w in torch.linspace(0.2, 8, 100).tolist())
    assert learned < error(gaussian_kernel) < error(torch.zeros_like)  # the plain average
    assert error(epanechnikov_kernel) < error(torch.zeros_like)
    assert learned == pytest.approx(best, rel=0.01)


def test_the_picture_contains_its_patches_row_by_row():
    image = patches.picture(torch.tensor(patches.PATCHES))
    assert image[:4].tolist() == image[4:].tolist()
    assert image[1].tolist() == [0, 1, 1, 0, 1, 1, 1, 1]
    assert image[3].tolist() == [0, 1, 1, 0, 0, 1, 1, 0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("pooling", "Gaussian, learned w = "),
        ("patches", "0.1888  0.3112  0.1888  0.3112"),
    ],
)
def test_experiments_print_numbers_without_matplotlib_and_draw_a_picture_with_it(tmp_path, name, printed):
    (tmp_path / "matplotlib.py").write_text("raise ImportError('not installed')", encoding="utf-8")
    finished = run_module("textbook", name, cwd=tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert printed in finished.stdout
    finished = run_module("textbook", name, "--output", "out.png", cwd=tmp_path)
    assert finished.returncode == 2
    assert finished.stderr == "experiments.textbook: drawing needs matplotlib: pip install matplotlib\n"
    (tmp_path / "matplotlib.py").unlink()
    pytest.importorskip("matplotlib")
    finished = run_module("textbook", name, "--output", "out.png", cwd=tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.endswith("Drew out.png\n")
    width, height = png_size(tmp_path / "out.png")
    assert width > 1000
    assert height > 400


def test_the_bigram_loss_covers_every_validation_character(tmp_path, capsys):
    text = "abcabcabdabc" * 50
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    assert textbook(["bigram", "--corpus", str(tmp_path / "text.txt")]) == 0
    training, validation = text[:540], text[539:]
    total = 0.0
    for first, second in pairwise(validation):
        n_pair = sum(training[i : i + 2] == first + second for i in range(539))
        probability = (n_pair + 1) / (training[:-1].count(first) + 4)
        total -= torch.log(torch.tensor(probability, dtype=torch.float64)).item()
    assert f"validation loss {total / 60:.4f} nats" in capsys.readouterr().out


def test_the_loss_of_an_untrained_bigram_model_is_that_of_a_uniform_guess():
    assert bigram.mean_loss(Bigram(7).double(), torch.randint(7, (100,))) == pytest.approx(torch.tensor(7.0).log())


def test_a_missing_corpus_produces_a_one_line_error(capsys):
    assert textbook(["bigram", "--corpus", "nowhere.txt"]) == 2
    assert re.fullmatch(r"experiments.textbook: .*nowhere.txt: no such file.*\n", capsys.readouterr().err)


def test_strings_are_padded_and_their_targets_are_reversed():
    source, mask, target = reversal_batch(500, torch.Generator().manual_seed(0))
    lengths = mask.sum(1).tolist()
    assert set(lengths) == set(range(1, LONGEST + 1))
    for row, n, answer in zip(source.tolist(), lengths, target.tolist(), strict=True):
        assert answer == row[:n][::-1] + [END] * (LONGEST + 1 - n)


def test_the_reversal_prints_strings_and_the_number_of_correct_ones(capsys):
    assert textbook(["reversal", "--steps", "2"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"^ *[a-l]+ -> [a-l?]* +(right|wrong)$", printed, re.MULTILINE)
    assert re.search(r"^\d+ of \d+ strings", printed, re.MULTILINE)


@pytest.mark.slow
def test_the_one_file_gpt_prints_the_same_sample_for_the_same_seed(capsys):
    outputs = []
    for seed in ("1", "1", "2"):
        assert textbook(["gpt", "--steps", "2", "--seed", seed]) == 0
        outputs.append(capsys.readouterr().out.partition("Sample:\n")[2])
    assert len(outputs[0]) > gpt.SAMPLE_LENGTH
    assert outputs[0] == outputs[1] != outputs[2]
    assert textbook(["gpt", "--seconds", "0.01"]) == 0
    assert capsys.readouterr().out.count("step 1 ") == 1
