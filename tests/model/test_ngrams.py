"""The memory of n-grams, compared with one that looks up n-grams one by one in float64."""

from collections import Counter

import numpy as np
import pytest
import torch
from helpers import make_model

from model import ngrams
from model.gpt import GPT
from model.ngrams import LOW_BITS, MULTIPLIER, WIDTH

V, BLOCK_SIZE = 12, 8
SETTINGS = {"ngrams": (1, 2, 4), "ngram_rows": 1000, "block_size": BLOCK_SIZE}


def row_of(symbols):
    """Return the row of an n-gram, in Python's integers. Symbols are those of the ids, or 0 before the window."""
    hashed = 0
    for symbol in reversed(symbols):
        hashed = (hashed + symbol) * MULTIPLIER % 2**64
    signed = hashed - 2**64 if hashed >= 2**63 else hashed
    return (signed >> LOW_BITS) % SETTINGS["ngram_rows"]


def expected_embedding(model, ids):
    """Return the embeddings (T, C) of a window of ids, with one vector per n-gram."""
    rows = model.memories["ngrams"].rows.weight.detach().double().numpy()
    proj = model.memories["ngrams"].proj.weight.detach().double().numpy().reshape(-1, 3, WIDTH)  # (C, n-grams, width)
    counts = model.memories["ngrams"].counts.numpy()
    symbols = [0] * 3 + model.memories["ngrams"].symbols[ids].tolist()
    result = []
    for t, i in enumerate(ids):
        y = model.token_embedding.weight[i].detach().double().numpy()
        for k, n in enumerate(SETTINGS["ngrams"]):
            row = row_of(symbols[t + 4 - n : t + 4])
            y = y + proj[:, k] @ rows[row] * counts[row] / (counts[row] + 3)
        result.append(y)
    return np.array(result)


def test_log_probabilities_equal_those_of_looking_up_each_ngram_in_float64():
    model = make_model(V, **SETTINGS).double()
    model.memories["ngrams"].counts.random_(9)
    model.memories["ngrams"].prior.fill_(3)
    model.memories["ngrams"].symbols.copy_(1 + torch.randperm(V))
    plain = GPT(make_model(V, block_size=BLOCK_SIZE).config, V).double().eval()
    plain.load_state_dict({name: x for name, x in model.state_dict().items() if "ngrams" not in name})
    ids = torch.randint(V, (2, BLOCK_SIZE))
    given = torch.from_numpy(np.stack([expected_embedding(model, window.tolist()) for window in ids]))
    plain.token_embedding.register_forward_hook(lambda *_: given)
    torch.testing.assert_close(model(ids).log_softmax(-1), plain(ids).log_softmax(-1), rtol=0, atol=1e-12)


def test_a_step_changes_only_the_rows_that_its_windows_read():
    model, ids = make_model(V, **SETTINGS).train(), torch.tensor([[3, 5, 3, 5]])
    model(ids).sum().backward()
    symbols = [0, 0, 0, 4, 6, 4, 6]
    read = {row_of(symbols[t + 4 - n : t + 4]) for n in (1, 2, 4) for t in range(4)}
    assert len(read) == 2 + 3 + 4
    assert set(model.memories["ngrams"].rows.weight.grad.coalesce().indices()[0].tolist()) <= read


def test_counts_are_those_of_each_ngram_of_the_training_text(monkeypatch):
    monkeypatch.setattr(ngrams, "BATCH", 7)
    model, ids = make_model(V, **SETTINGS), np.random.default_rng(0).integers(0, V, 40)
    model.memories["ngrams"].symbols.copy_(1 + torch.randperm(V))
    model.memories["ngrams"].count(ids)
    symbols = [0, 0, 0, *model.memories["ngrams"].symbols[ids].tolist()]
    expected = Counter(row_of(symbols[t + 4 - n : t + 4]) for n in SETTINGS["ngrams"] for t in range(40))
    assert {row: c for row, c in enumerate(model.memories["ngrams"].counts.tolist()) if c} == expected


def test_of_a_long_text_evenly_spread_stretches_are_counted(monkeypatch):
    monkeypatch.setattr(ngrams, "BATCH", 7)
    monkeypatch.setattr(ngrams, "COUNTED", 14)
    model, ids = make_model(V, **SETTINGS), np.random.default_rng(0).integers(0, V, 40)
    model.memories["ngrams"].count(ids)
    symbols = [0, 0, 0, *(ids + 1).tolist()]
    model.memories["ngrams"].set_passes(3)
    assert model.memories["ngrams"].prior.item() == pytest.approx(2.4 * 3 * 2 / 6)  # two of six stretches
    places = [*range(7), *range(21, 28)]
    expected = Counter(row_of(symbols[t + 4 - n : t + 4]) for n in SETTINGS["ngrams"] for t in places)
    assert {row: c for row, c in enumerate(model.memories["ngrams"].counts.tolist()) if c} == expected


@pytest.mark.parametrize(("training", "values"), [(True, [0, 1]), (False, [pytest.approx(5 / 9)])])
def test_in_training_half_of_the_rows_are_dropped_and_the_others_doubled_without_the_character_itself(training, values):
    """A row that the text reads 5 times has the weight 5 / (5 + 4), and in training 4 / (4 + 4)."""
    model = make_model(V, **SETTINGS | {"ngrams": (1,)})
    with torch.no_grad():
        model.memories["ngrams"].counts.fill_(5)
        model.memories["ngrams"].prior.fill_(4)
        model.memories["ngrams"].rows.weight.fill_(1)
        model.memories["ngrams"].proj.weight.zero_()[:3, :3].copy_(torch.eye(3))
    ids = torch.randint(V, (100, BLOCK_SIZE))
    y = model.train(training).memories["ngrams"](model.places(ids))[..., :3].detach()
    assert torch.equal(y, y[..., :1].expand_as(y))  # a row is dropped as a whole
    assert all(any(value == expected for expected in values) for value in y.unique().tolist())
    assert y.mean() == pytest.approx(0.5 if training else 5 / 9, abs=0.08)
