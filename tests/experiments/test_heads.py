"""Measures of constructed heads, and silenced heads against zeroed weights."""

import copy
import itertools

import numpy as np
import pytest
import scipy.stats
import torch
from helpers import make_model
from torch import nn

from data.vocabulary import Vocabulary
from experiments.heads.analysis import analyse, mean_and_error
from experiments.heads.measures import TARGETS, HeadMeasures, measure_heads, read_windows, role_of, target_masks
from experiments.heads.silence import parts_of, silenced
from training.runtime import choose_runtime
from training.trained_model import weights_of

TEXT = "so\n\nANN:\nno, no!\n\nBOB:\nso so"


def one_hot(columns, T):
    """Return the weights (T, T) of a head that attends to one column per row: the given one, or else itself."""
    weights = torch.zeros(T, T)
    for t in range(T):
        weights[t, t if columns.get(t) is None else columns[t]] = 1
    return weights


def measure(*heads, text=TEXT):
    return measure_heads([(torch.stack(heads), text)])


def seen(text):
    """Return the positions of each target for each position, found character by character."""
    positions, (ann, bob) = range(len(text)), (TEXT.index(name) for name in ("ANN", "BOB"))
    name = [ann if t > ann + 4 else None for t in positions]  # known at the end of the line
    name = [bob if t > bob + 4 else start for t, start in zip(positions, name, strict=True)]
    return {
        "on itself": [[t] for t in positions],
        "on previous": [[t - 1] if t else [] for t in positions],
        "on same earlier": [[i for i in range(t) if text[i] == text[t]] for t in positions],
        "on what followed it": [[i + 1 for i in range(t - 1) if text[i] == text[t]] for t in positions],
        "on line start": [[text.rindex("\n", 0, t) + 1] if "\n" in text[:t] else [] for t in positions],
        "on speaker name": [[] if start is None else [start, start + 1, start + 2] for start in name],
    }


@pytest.mark.parametrize("target", TARGETS)
def test_a_head_built_to_attend_to_a_target_has_a_share_of_1_there(target):
    expected = seen(TEXT)[target]
    assert [np.flatnonzero(row).tolist() for row in target_masks(TEXT)[target].numpy()] == expected
    result = measure(one_hot({t: found[-1] for t, found in enumerate(expected) if found}, len(TEXT)))
    assert result.figures[target].item() == pytest.approx(1)
    assert result.figures["entropy, bits"].item() == 0
    without_targets = measure(one_hot({1: 0, 2: 1, 3: 2}, 4), text="abcd")
    assert without_targets.figures["characters back"].item() == 1
    absent = {"on same earlier", "on what followed it", "on line start", "on speaker name"}
    assert without_targets.figures[target].isnan() == (target in absent)


def test_measures_of_a_head_with_equal_weights_have_their_closed_forms():
    T = len(TEXT)
    uniform = torch.ones(T, T).tril() / torch.arange(1, T + 1)[:, None]
    result = measure(uniform)
    rows = range(2, T + 1)  # how many characters each row sees, the first left out
    assert result.figures["entropy, bits"].item() == pytest.approx(np.mean(np.log2(rows)))
    assert result.figures["characters back"].item() == pytest.approx(np.mean([(n - 1) / 2 for n in rows]))
    assert result.figures["on previous"].item() == pytest.approx(np.mean([1 / n for n in rows]))
    for name in TARGETS:
        assert result.figures[name].item() == pytest.approx(result.uniform[name], rel=1e-6)


def test_the_role_of_a_head_is_the_target_with_the_largest_excess_over_equal_weights():
    shares = {"on itself": [0.1, 0.5, 0.58], "on previous": [0.3, 0.27, 0.3]}  # of three heads
    figures = {name: torch.tensor(shares.get(name, [torch.nan] * 3)) for name in TARGETS}
    figures["entropy, bits"] = torch.tensor([1.0, 2.25, 3.0])
    measures = HeadMeasures(figures, dict.fromkeys(TARGETS, 0.1) | {"on itself": 0.45}, 100)
    # On the previous one, the excess is 0.222, 0.189 and 0.222 of the possible 0.9; on itself, 0.236 for the last head.
    roles = [("previous character", "0.30"), ("no fixed target", "2.2 bits"), ("itself", "0.58")]
    assert [role_of(measures, head) for head in range(3)] == roles


def test_windows_are_spread_over_the_whole_text_and_do_not_overlap():
    model, vocabulary = three_heads(), Vocabulary("abcdefghijk")
    ids = np.random.default_rng(0).integers(0, 11, 83)
    text = vocabulary.decode(ids.tolist())
    for n, starts in ((3, [0, 33, 67]), (64, [0, 16, 33, 50, 67])):
        windows = list(read_windows(model, vocabulary, ids, n))
        assert [window for _, window in windows] == [text[start : start + 16] for start in starts]
    torch.testing.assert_close(windows[1][0], torch.cat(weights_of(model, torch.from_numpy(ids[None, 16:32]))))


def three_heads(**settings):
    return make_model(11, **({"n_head": 3, "n_embd": 24} | settings))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"positions": "learned", "qk_norm": False, "bias": True},
        {"n_kv_head": 1},
        {"score": "gaussian"},
        {"positions": "alibi"},
    ],
    ids=["modern", "textbook", "one key for all heads", "gaussian", "alibi"],
)
@torch.inference_mode()
def test_the_displayed_weights_are_those_that_the_layer_uses(settings):
    """Averaging the values by these weights, head by head, gives the output of the layer."""
    model, ids = three_heads(**settings), torch.randint(0, 11, (1, 13), generator=torch.Generator().manual_seed(1))
    passed = []
    for block in model.blocks:
        block.attention.register_forward_hook(lambda _, args, y: passed.append((args[0], y)))
    model(ids)
    H, n_layer = model.blocks[0].attention.n_head, len(model.blocks)
    every_weight = torch.cat(weights_of(model, ids)).view(n_layer, 1, H, 13, 13)
    for weights, block, (x, y) in zip(every_weight, model.blocks, passed[:n_layer], strict=True):
        attention = block.attention
        K, D = attention.n_kv_head, attention.head_size
        assert weights.sum(-1).allclose(torch.ones(()))
        assert weights.triu(1).eq(0).all()
        values = attention.qkv(x)[..., (H + K) * D :].split(D, dim=-1)  # (B, T, D) of each head of values
        sums = [weights[:, h] @ values[h // (H // K)] for h in range(H)]
        assert attention.proj(torch.cat(sums, dim=-1)).allclose(y, atol=1e-5)


@pytest.mark.parametrize("heads", [[(0, 0)], [(1, 1)], [(0, 1), (0, 2), (1, 0)]])
@pytest.mark.parametrize("settings", [{}, {"n_kv_head": 1}, {"n_head": (4, 2), "bias": True}])
def test_a_layer_with_silenced_heads_is_the_layer_without_their_sums(settings, heads):
    """A hook zeroes these heads in the input of the output projection."""
    model, ids = three_heads(**settings), torch.arange(11)[None]
    heads = [(layer, h) for layer, h in heads if (layer, h) in parts_of(model)]
    before = model(ids)
    with silenced(model, heads):
        found = model(ids)
    assert torch.equal(model(ids), before)
    for i, block in enumerate(model.blocks):
        kept = torch.ones(block.attention.n_head, block.attention.head_size)
        kept[[h for layer, h in heads if layer == i]] = 0
        kept = kept.flatten()
        block.attention.proj.register_forward_pre_hook(lambda _, inputs, kept=kept: inputs[0] * kept)
    torch.testing.assert_close(found, model(ids))
    assert not torch.allclose(found, before)


@pytest.mark.parametrize(("n_characters", "sizes"), [(None, [*[16] * 20, 3]), (64, [16] * 4)])
@torch.inference_mode()
def test_increases_equal_those_of_models_with_zeroed_heads_over_the_same_windows(n_characters, sizes):
    model, runtime = three_heads(ngrams=(2, 3), longest_copy=4, conv_width=2).double(), choose_runtime("cpu", "float32")
    ids = np.concatenate([np.zeros(161, dtype=np.int64), np.random.default_rng(0).integers(1, 11, 163)])
    result = analyse(model, Vocabulary("abcdefghijk"), ids, runtime, n_characters, n_windows=3)
    starts = [(80 if n_characters else 16) * i for i in range(len(sizes))]  # of windows that are spread evenly
    windows = [torch.from_numpy(ids[start : start + n + 1]) for start, n in zip(starts, sizes, strict=True)]

    def losses(model):
        return np.array([nn.functional.cross_entropy(model(w[None, :-1])[0], w[1:]).item() for w in windows])

    def loss(model):
        return pytest.approx(np.average(losses(model), weights=sizes), abs=1e-12)

    whole = losses(model)
    assert result.evaluation.loss == loss(model)
    assert (result.evaluation.n_characters, result.evaluation.n_available) == (sum(sizes), 323)
    *heads, ngrams, copies = result.increases
    assert heads == list(itertools.product(range(2), range(3)))
    for layer, h in heads:
        zeroed = copy.deepcopy(model)
        zeroed.blocks[layer].attention.proj.weight.data[:, h * 8 : h * 8 + 8] = 0
        increase, error = result.increases[layer, h]
        assert result.evaluation.loss + increase == loss(zeroed)
        assert n_characters is None or error == pytest.approx(scipy.stats.sem(losses(zeroed) - whole))
    assert result.measures.n_characters == 3 * 15
    assert (ngrams, copies) == ("n-grams", "copies")
    for name, weight in (
        ("n-grams", model.memories["ngrams"].proj.weight),
        ("copies", model.memories["copies"].followers.weight),
    ):
        before = weight.clone()
        weight.data.zero_()
        assert result.evaluation.loss + result.increases[name][0] == loss(model)
        weight.data.copy_(before)


def test_the_standard_error_is_that_of_a_mean_over_windows_of_which_the_last_is_shorter():
    sizes = torch.tensor([16.0] * 20 + [3])
    assert mean_and_error(2 * sizes, sizes) == (2, 0)
    rng = np.random.default_rng(0)
    means = 2 + rng.standard_normal(21)
    draws = rng.integers(0, 21, (4000, 21))  # a bootstrap
    spread = np.std([np.average(means[drawn], weights=sizes[drawn]) for drawn in draws])
    assert mean_and_error(torch.from_numpy(means) * sizes, sizes)[1] == pytest.approx(spread, rel=0.1)
