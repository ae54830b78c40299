import math
import re
import shutil
from pathlib import Path

import pytest
from helpers import assert_mistake, train_run

from experiments.score import main as score_command
from training.runs.checkpoint import load_checkpoint

LINE = re.compile(
    r"(\S+) on (.+): ([\d.]+) nats, "
    r"([\d.]+) bits per character, perplexity ([\d.]+), over ([\d,]+) char"
)


def scores(capsys, *arguments):
    """Return path, text, loss, bits, perplexity and number of characters of each line."""
    capsys.readouterr()
    assert score_command(list(map(str, arguments))) == 0
    lines = LINE.findall(capsys.readouterr().out)
    return [(path, text, *map(float, numbers), int(n.replace(",", ""))) for path, text, *numbers, n in lines]


def test_the_score_of_the_validation_split_is_the_loss_that_training_reported(run, capsys):
    [(path, text, loss, bits, perplexity, n)] = scores(capsys)
    assert (path, text, n) == ("runs/tiny/checkpoints/best.safetensors", "the validation split of text.txt", 203)
    best = load_checkpoint(run.best).progress.best_loss
    assert loss == pytest.approx(best, abs=5e-5)
    assert bits == pytest.approx(best / math.log(2), abs=5e-5)
    assert perplexity == pytest.approx(math.exp(best), abs=5e-4)


def test_the_score_of_a_split_is_that_of_its_text_in_a_file(run, workplace, capsys):
    text = (workplace / "text.txt").read_text(encoding="utf-8")
    (workplace / "end.txt").write_text(text[int(0.9 * len(text)) - 1 :], encoding="utf-8")
    ((_, name, *of_split),) = scores(capsys, "--split", "test")
    assert name == "the test split of text.txt"
    ((_, name, *of_file),) = scores(capsys, "--text", "end.txt")
    assert name == "end.txt"
    assert of_split == of_file
    assert of_split[-1] == 203


def test_a_lone_checkpoint_is_scored_on_a_split_of_its_text_if_the_text_is_named(run, workplace, capsys):
    ((_, _, *of_run),) = scores(capsys, "--split", "validation")
    shutil.copy(run.best, "lone")
    shutil.move("text.txt", "moved.txt")
    ((_, name, *of_file),) = scores(capsys, "--checkpoint", "lone", "--text", "moved.txt", "--split", "validation")
    assert (name, of_file) == ("the validation split of moved.txt", of_run)
    (workplace / "other.txt").write_text((workplace / "moved.txt").read_text()[1:])
    other = ["--checkpoint", "lone", "--text", "other.txt", "--split", "validation"]
    assert_mistake(capsys, score_command, other, "other.txt is not the one that lone was trained on; leave out --split")


def test_the_scores_of_three_seeds_end_with_their_mean_and_their_standard_deviation_with_n_minus_1(workplace, capsys):
    paths = [train_run(f"{seed}", f"train.seed={seed}", "train.max_steps=9").path for seed in range(3)]
    losses = [loss for _, _, loss, *_ in scores(capsys, "--checkpoint", *paths)]
    last = summary(capsys, *paths)
    mean, deviation = map(float, re.findall(r"\d\.\d+", last))
    assert last == f"mean of 3 models: {mean:.4f} nats per character, standard deviation {deviation:.4f}"
    assert mean == pytest.approx(sum(losses) / 3, abs=1e-4)
    assert deviation == pytest.approx(math.sqrt(sum((loss - mean) ** 2 for loss in losses) / 2), abs=2e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--checkpoint", "nowhere"], "nowhere: no such run or checkpoint"),
        (["--text", "no.txt"], "no.txt: No such file or directory"),
        (["--text", "strange.txt"], "'X' (U+0058) is not in the vocabulary (character 3 of the text)"),
        (["--text", "short.txt"], "short.txt is too short"),
        (["--text", "binary.txt"], "binary.txt is not utf-8 (byte 1"),
    ],
)
def test_mistakes_produce_a_one_line_error(run, workplace, capsys, arguments, message):
    for name, content in (("strange", b"99XX"), ("short", b"9"), ("binary", b"9\xff9")):
        (workplace / f"{name}.txt").write_bytes(content)
    assert_mistake(capsys, score_command, arguments, message)


def test_a_run_without_a_test_split_says_how_to_get_one(workplace, capsys):
    train_run("tiny", "train.max_steps=1")
    message = "has no test split; train with data.split="
    assert_mistake(capsys, score_command, ["--split", "test"], message)


def test_a_separate_validation_text_is_named_and_leaves_no_test_split(workplace, capsys):
    Path("other.txt").write_text(Path("text.txt").read_text()[:99])
    run = train_run("tiny", "train.max_steps=1", "data.val_corpus=other.txt")
    ((_, name, *_),) = scores(capsys)
    assert name == "the validation split of other.txt"
    message = f"{run.best} has no test split"
    assert_mistake(capsys, score_command, ["--split", "test"], message)


def summary(capsys, *paths):
    assert score_command(["--checkpoint", *map(str, paths)]) == 0
    return capsys.readouterr().out.splitlines()[-1]


def test_only_seeds_of_one_variant_have_a_mean(run, capsys):
    def last_line(*settings):
        shutil.rmtree("runs/other", ignore_errors=True)
        return summary(capsys, run.path, train_run("other", *same, *settings).path)

    same = ["optim.average_fraction=0.1", "train.seed=1", "train.dtype=float32"]
    assert last_line("data.split=[0.8,0.1,0.1]").startswith("mean of 2 models")
    assert last_line("data.split=[0.8,0.1,0.1]", "data.encoding=latin-1").endswith("differ in data.encoding")
    assert last_line().endswith("no mean: the models are not seeds of one variant; they differ in data.split")


def test_one_run_twice_has_no_mean(run, capsys):
    no_mean = "no mean: the models are not seeds of one variant; two have the same seed"
    assert summary(capsys, run.path, run.path) == no_mean
