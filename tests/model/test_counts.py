"""The counts of the training text, compared with a search through it in Python's numbers."""

import copy
from collections import Counter

import numpy as np
import pytest
import torch
from helpers import make_model, recomputed

from model import counts as counting
from model.counts import BACKOFF, COUNTS_WEIGHT, LONGEST, NETWORK_WEIGHT, Counts
from model.generate import Sampler

V, BLOCK_SIZE = 5, 16
SETTINGS = {"counted_characters": 300, "block_size": BLOCK_SIZE}


def text_of(length, vocab_size=V, seed=0):
    """Return ids in which short strings come again and again."""
    rng = np.random.default_rng(seed)
    words = [rng.integers(0, vocab_size, size) for size in (3, 5, 12, 14)]
    parts = [words[i] if i < 4 else rng.integers(0, vocab_size, 2) for i in rng.integers(0, 5, length)]
    return np.concatenate(parts)[:length]


def expected(text, context, vocab_size, longest):
    """Return the probabilities (V,) after a context, given the counted text; both are lists."""
    counts = Counter(text[longest:])  # what follows a whole key
    p = np.array([(counts[v] + 1) / (counts.total() + vocab_size) for v in range(vocab_size)])
    for k in range(1, min(longest, len(context)) + 1):
        found = Counter(text[i] for i in range(longest, len(text)) if text[i - k : i] == context[-k:])
        d = BACKOFF * len(found)
        if found:
            p = np.array([(found[v] + d * p[v]) / (found.total() + d) for v in range(vocab_size)])
    return p


@pytest.mark.parametrize(("vocab_size", "size", "length"), [(5, 300, 300), (5, 100, 300), (5, 300, 40), (90, 400, 400)])
def test_probabilities_equal_those_of_a_search_through_the_text(monkeypatch, vocab_size, size, length):
    monkeypatch.setattr(counting, "COUNTS_AT_ONCE", 200)  # one window at once
    text, counts = text_of(length, vocab_size), Counts(size, vocab_size)
    counts.count(text)
    longest = counts.n_before + 1
    assert longest == LONGEST if vocab_size == 5 else longest == 9
    windows = np.stack([text[10:40], text_of(30, vocab_size, seed=1)])
    recent = torch.from_numpy(np.pad(windows + 1, ((0, 0), (counts.n_before, 0))))
    found = counts.double()(recent)
    kept = text[:size].tolist()
    wanted = [[expected(kept, w[: t + 1].tolist(), vocab_size, longest) for t in range(30)] for w in windows]
    torch.testing.assert_close(found, torch.tensor(np.array(wanted)).log(), rtol=0, atol=1e-6)


def test_a_trained_network_and_the_counts_predict_together_and_a_network_in_training_alone():
    model, text, ids = make_model(V, **SETTINGS), text_of(300), torch.randint(V, (2, BLOCK_SIZE))
    plain = make_model(V, block_size=BLOCK_SIZE)
    plain.load_state_dict({name: x for name, x in model.state_dict().items() if "counts" not in name})
    model.count(text)
    logits = plain(ids)
    recent = torch.nn.functional.pad(ids + 1, (LONGEST - 1, 0))
    wanted = NETWORK_WEIGHT * logits + COUNTS_WEIGHT * model.counts(recent)
    torch.testing.assert_close(model(ids), wanted, rtol=0, atol=1e-5)
    assert (model(ids) - logits).abs().max() > 0.1
    torch.testing.assert_close(model.train()(ids), logits, rtol=0, atol=1e-5)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("ngrams", [(), (2, 12)])
def test_the_text_is_the_same_with_and_without_the_cache_past_the_context_length(seed, ngrams):
    model, prompt = make_model(V, **SETTINGS, ngrams=ngrams, ngram_rows=1000), torch.randint(V, (2, 1 + seed))
    model.count(text_of(300))
    cached = torch.stack(list(Sampler(model, 2).generate(prompt, 40, seed=seed)), dim=1)
    assert torch.equal(cached, recomputed(model, prompt, 40, seed=seed))


def test_a_model_that_is_loaded_counts_in_the_text_of_the_saved_one():
    model, ids = make_model(V, **SETTINGS), torch.randint(V, (2, BLOCK_SIZE))
    other = copy.deepcopy(model)
    model.count(text_of(300))
    assert not torch.equal(other(ids), model(ids))
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(ids), model(ids))
