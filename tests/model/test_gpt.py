import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F
from helpers import make_model

from model import attention
from model.cache import KVCache
from model.config import ModelConfig
from model.gpt import GPT

B, T, V = 3, 11, 29
GPT2 = {"positions": "learned", "norm": "layer", "mlp": "gelu", "qk_norm": False, "logit_softcap": 0, "bias": True}
FORMS = {
    "modern": {},
    "GPT-2": GPT2,
    "heads per layer": {"n_head": (5, 1), "positions": "learned"},
    "rotary heads per layer": {"n_head": (1, 2)},
    "convolution": {"conv_width": 3},
    "convolution of the previous position": GPT2 | {"conv_width": 2},
    "n-grams": {"ngrams": (1, 3, 4), "ngram_rows": 50},
    "copies": {"longest_copy": 3},
    "copies, and n-grams that read further back": {"longest_copy": 5, "ngrams": (2, 12), "ngram_rows": 50},
    "grouped queries": {"n_head": 10, "n_kv_head": 5},
    "one shared key head": GPT2 | {"n_head": 4, "n_kv_head": 1},
    "no positions": {"positions": "none"},
    "penalty on distance": {"n_head": 5, "positions": "alibi"},
    **{score: {"score": score} for score in ("uniform", "dot", "additive", "gaussian")},
}
every_form = pytest.mark.parametrize("settings", FORMS.values(), ids=FORMS)


def new_model(**settings):
    return GPT(make_model(V, **settings).config, V)


def random_ids(length=T):
    """Return ids (B, length) whose last four are also the first ones."""
    ids = torch.randint(V, (B, length))
    ids[:, -4:] = ids[:, :4]
    return ids


@every_form
def test_the_loss_before_training_is_that_of_a_uniform_guess(settings):
    ids = random_ids(T + 1)
    loss = F.cross_entropy(new_model(**settings)(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    assert abs(loss.item() - math.log(V)) < 0.05


def test_initial_weights_have_their_documented_sizes():
    settings = {"n_layer": 1, "n_embd": 96, "n_head": 3, "positions": "learned", "ngrams": (2, 3), "longest_copy": 5}
    model = GPT(ModelConfig(**settings), 200)
    found = {name: weight.square().mean().sqrt().item() for name, weight in model.named_parameters()}
    expected = {"token_embedding.weight": 0.3, "position_embedding.weight": 0.3}
    expected |= {"blocks.0.attention.qkv.weight": 96**-0.5, "blocks.0.mlp.up.weight": 96**-0.5}
    expected |= {"blocks.0.attention.qk_norm.log_scale": math.log(12)}
    expected |= {"memories.ngrams.proj.weight": 64**-0.5, "memories.copies.strengths": 1}
    zero = (
        "memories.ngrams.rows.weight",
        "memories.copies.followers.weight",
        "blocks.0.attention.proj.weight",
        "blocks.0.mlp.proj.weight",
        "lm_head.weight",
    )
    assert found == pytest.approx(expected | dict.fromkeys(zero, 0), rel=0.03)


@every_form
def test_gradients_reach_every_parameter_after_the_first_steps(settings):
    model, ids = new_model(**settings), random_ids(T + 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(4):  # weights leave their initial zeros layer by layer, from the head inwards
        optimizer.zero_grad()
        F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()).backward()
        optimizer.step()
    without = {name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0}
    assert without == set()


@every_form
def test_future_characters_cannot_change_past_logits(settings):
    model, ids = make_model(V, **settings), random_ids()
    changed = ids.clone()
    changed[:, 6:] = (changed[:, 6:] + 1) % V
    before, after = model(ids), model(changed)
    torch.testing.assert_close(after[:, :6], before[:, :6])
    assert not torch.allclose(after[:, 6:], before[:, 6:])


@every_form
def test_sequences_of_a_batch_never_see_each_other(settings):
    model, ids = make_model(V, **settings), random_ids()
    torch.testing.assert_close(model(ids)[1:2], model(ids[1:2]))


@pytest.mark.parametrize("settings", [{}, GPT2], ids=["modern", "GPT-2"])
def test_the_order_of_the_characters_matters(settings):
    model, ids = make_model(V, **settings), torch.tensor([[3, 5, 7, 7]])
    assert not torch.allclose(model(ids)[0, -1], model(ids[:, [1, 0, 2, 3]])[0, -1])


@every_form
@pytest.mark.parametrize("pieces", [[1] * T, [4, 1, 6], [T]], ids=str)
@torch.inference_mode()
def test_reading_in_pieces_with_a_cache_gives_the_same_logits_as_reading_at_once(settings, pieces):
    model, ids = make_model(V, **settings).double(), random_ids()
    cache = KVCache(model.config, B, dtype=torch.float64)
    model(ids.roll(3, 1), cache)  # earlier content of the cache must not matter
    cache.length = 0
    logits = [model(piece, cache) for piece in ids.split(pieces, dim=1)]
    torch.testing.assert_close(torch.cat(logits, dim=1), model(ids), rtol=0, atol=1e-12)


def test_a_forward_pass_that_fails_leaves_the_cache_as_it_was():
    model, ids = make_model(V), random_ids()
    cache = KVCache(model.config, B)
    with torch.no_grad():
        model(ids[:, :5], cache)
        with pytest.raises(IndexError):
            model(ids[:, 5:] + V, cache)  # these ids are not in the vocabulary
        torch.testing.assert_close(model(ids[:, 5:], cache), model(ids)[:, 5:])


@pytest.mark.parametrize("place", ["embedding", "attention weights", "attention", "mlp"])
def test_dropout_acts_in_training_at_each_of_its_places(monkeypatch, place):
    """A dropout probability close to 1 at one place, and 0 at the others, changes the logits."""
    model, ids = make_model(V).train(), random_ids()
    before = model(ids)
    block = model.blocks[0]
    if place == "embedding":
        model.config = dataclasses.replace(model.config, dropout=0.9)
    elif place == "mlp":
        block.mlp.dropout = 0.9
    else:  # one setting serves two places: silence the other one
        block.attention.dropout = 0.9
        attend, drop = attention.attend, F.dropout
        if place == "attention weights":
            monkeypatch.setattr(F, "dropout", lambda x, p, training=None: drop(x, p) if training is None else x)
        else:
            monkeypatch.setattr(attention, "attend", lambda *a, **options: attend(*a, **options | {"dropout": 0.0}))
    assert not torch.allclose(model(ids), before)
    assert torch.equal(model.eval()(ids), model(ids))


def test_a_float64_model_returns_float64_logits_and_a_float32_model_float32():
    model, ids = make_model(V), random_ids()
    single = model(ids)
    assert single.dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert model(ids).dtype == torch.float32
    double = model.double()(ids)
    assert double.dtype == torch.float64
    torch.testing.assert_close(double.float(), single, atol=1e-4, rtol=1e-4)


def test_ids_of_the_wrong_shape_and_too_many_positions_are_errors():
    model, cache = make_model(V), KVCache(make_model(V).config, 1)
    with pytest.raises(ValueError, match=r"ids has shape \(5,\); expected \(B, T\)"):
        model(torch.zeros(5, dtype=torch.long))
    with pytest.raises(ValueError, match=r"17 positions do not fit into model.block_size=16"):
        model(torch.zeros(1, 17, dtype=torch.long))
    model(torch.zeros(1, 10, dtype=torch.long), cache)
    with pytest.raises(ValueError, match="17 positions"):
        model(torch.zeros(1, 7, dtype=torch.long), cache)


def test_capped_logits_stay_within_the_cap():
    model = make_model(V)
    with torch.no_grad():
        model.lm_head.weight.mul_(1000)
    assert model(random_ids()).abs().max() <= 15
