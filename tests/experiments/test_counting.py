"""The loss of counted n-grams, against a model that counts with dictionaries."""

import math
from collections import Counter, defaultdict

import numpy as np
import pytest

from experiments.counting import losses
from experiments.counting import main as counting

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


def test_the_command_counts_the_first_characters_of_the_training_split(workplace, capsys):
    counting(["--config", "tiny.yaml", "--longest", "2", "--characters", "50"])
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("1-grams: ") and second.startswith("2-grams: ")
    for mistake in (["--longest", "9", "data.level=byte"], ["--characters", "1"]):
        assert counting(["--config", "tiny.yaml", *mistake]) == 2
