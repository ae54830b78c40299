"""The loss of counted n-grams, against a model that counts with dictionaries."""

import math
import shutil
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest

import train
from experiments.counting.__main__ import losses, spread
from experiments.counting.__main__ import main as counting

TRAINING, VALIDATION = "abracadabra, abra cadabra; abba" * 3, "cabbra dabra, ab"


def probability(seen, context, character, letters):
    """Return P(character | context) by Witten and Bell's rule, one context at a time."""
    if context is None:
        return 1 / len(letters)
    shorter = probability(seen, context[1:] if context else None, character, letters)
    followers = seen[context]
    if not followers:
        return shorter
    return (followers[character] + len(followers) * shorter) / (followers.total() + len(followers))


def test_the_losses_are_those_of_counting_one_context_at_a_time():
    letters = sorted(set(TRAINING + VALIDATION))
    ids = [np.array([letters.index(c) for c in text]) for text in (TRAINING, VALIDATION)]
    seen = defaultdict(Counter)
    for end in range(len(TRAINING)):
        for start in range(max(0, end - 3), end + 1):
            seen[TRAINING[start:end]][TRAINING[end]] += 1
    for n, loss in enumerate(losses(*ids, len(letters), longest=4), start=1):
        places = range(1, len(VALIDATION))
        expected = [probability(seen, VALIDATION[max(0, i - n + 1) : i], VALIDATION[i], letters) for i in places]
        assert loss == pytest.approx(-sum(map(math.log, expected)) / len(places))


def test_stretches_come_from_all_parts_of_a_text():
    assert spread(np.arange(41), 17, 4).tolist() == [*range(4), *range(12, 16), *range(24, 28), *range(36, 40)]
    assert spread(np.arange(41), 41, 4).tolist() == [*range(41)]


def test_the_command_counts_as_many_characters_as_a_run_reads_and_draws_both(runs, capsys):
    command = ["--config", "tiny.yaml", "--longest", "2"]
    assert counting([*command, "--beside", "runs/1-0", "--output", "both.svg"]) == 0
    line = capsys.readouterr().out
    assert line.startswith("960 characters counted")  # 12 steps of 5 windows of 16
    drawn = f"counting: length of the training, in steps of 80 characters 12, validation loss {line.split()[-1]}"
    assert drawn in Path("both.svg").read_text()
    Path("other.txt").write_text("abc\n" * 300)
    other = ["--beside", "runs/1-0", "--output", "both.svg", "data.corpus=other.txt"]
    tiny = ["--longest", "5", "model.block_size=1", "data.corpus=other.txt", "data.split=[0.999,0.001,0]"]
    for mistake in (["--longest", "9", "data.level=byte"], ["--output", "both.svg"], other, tiny):
        assert counting([*command, *mistake]) == 2


def test_counting_stands_beside_runs_that_read_as_much_in_a_step_and_were_measured_on_the_same(workplace, capsys):
    short = ["--config", "tiny.yaml", "train.max_steps=3", "train.name=a"]
    beside = ["--config", "tiny.yaml", "--longest", "2", "--beside", "runs", "--output", "both.svg"]
    assert train.main(short) == 0
    assert counting(beside) == 0
    for setting in ("train.batch_size=4", "data.split=[0.8,0.1,0.1]", "data.level=byte", "train.eval_characters=16"):
        assert train.main([*short, "train.name=b", setting]) == 0
        capsys.readouterr()
        assert counting(beside) == 2
        assert "runs: needs runs that read and evaluate all of text.txt" in capsys.readouterr().err
        shutil.rmtree("runs/b")
    shutil.rmtree("runs")
    Path("val.txt").write_text("12 bottles of beer\n" * 9)
    Path("train.txt").write_text(Path("text.txt").read_text() * 2)
    for text, status in (("text.txt", 0), ("train.txt", 2)):  # measured on the same, after training on another text
        assert train.main([*short, f"data.corpus={text}", "data.val_corpus=val.txt"]) == 0
        assert counting([*beside, "data.val_corpus=val.txt"]) == status
