import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from model import self_attention
from model.cache import KVCache, StaticKVCache
from model.config import ModelConfig
from model.gpt import GPT

B, T, V = 3, 11, 29
MODERN = ModelConfig(n_layer=2, n_head=2, n_embd=20, block_size=16)
TEXTBOOK = ModelConfig(
    n_layer=2,
    n_head=2,
    n_embd=20,
    block_size=16,
    positions="learned",
    norm="layer",
    mlp="gelu",
    qk_norm=False,
    logit_softcap=0,
    bias=True,
)
FORMS = {
    "modern": MODERN,
    "textbook": TEXTBOOK,
    "heads per layer": replace(MODERN, n_head=(5, 1), positions="learned"),
    "rotary heads per layer": replace(MODERN, n_head=(1, 2)),
    "convolution": replace(MODERN, conv_width=3),
    "convolution of the previous position": replace(TEXTBOOK, conv_width=2),
    "fixed scale": replace(MODERN, qk_scale=10.0),
    "scale of the head size": replace(MODERN, qk_scale="sqrt_head_size"),
    "grouped queries": replace(MODERN, n_head=10, n_kv_head=5),
    "one shared key head": replace(TEXTBOOK, n_head=4, n_kv_head=1),
    "no positions": replace(MODERN, positions="none"),
    "penalty on distance": replace(MODERN, n_head=5, positions="alibi"),
    **{score: replace(MODERN, score=score) for score in ("uniform", "dot", "additive", "gaussian")},
    "gaussian of fixed width": replace(TEXTBOOK, score="gaussian", score_width=2.0),
}
every_form = pytest.mark.parametrize("config", FORMS.values(), ids=FORMS)
both_shapes = pytest.mark.parametrize("config", [MODERN, TEXTBOOK], ids=["modern", "textbook"])


def trained_looking(config):
    """Return a model in which no weight matrix is at its initial zeros."""
    torch.manual_seed(4)
    model = GPT(config, V).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p), alpha=0.3)
    return model


@every_form
def test_the_loss_before_training_is_that_of_a_uniform_guess(config):
    ids = torch.randint(V, (B, T + 1))
    loss = F.cross_entropy(GPT(config, V)(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    assert abs(loss.item() - math.log(V)) < 0.05


@every_form
def test_gradients_reach_every_parameter_after_the_first_steps(config):
    model, ids = GPT(config, V), torch.randint(V, (B, T + 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(4):  # weights leave their initial zeros layer by layer, from the head inwards
        optimizer.zero_grad()
        F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()).backward()
        optimizer.step()
    without = {name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0}
    assert without == set()


@every_form
def test_future_characters_cannot_change_past_logits(config):
    model, ids = trained_looking(config), torch.randint(V, (B, T))
    changed = ids.clone()
    changed[:, 6:] = (changed[:, 6:] + 1) % V
    before, after = model(ids), model(changed)
    torch.testing.assert_close(after[:, :6], before[:, :6])
    assert not torch.allclose(after[:, 6:], before[:, 6:])


@every_form
def test_sequences_of_a_batch_never_see_each_other(config):
    model, ids = trained_looking(config), torch.randint(V, (B, T))
    torch.testing.assert_close(model(ids)[1:2], model(ids[1:2]))


@both_shapes
def test_the_order_of_the_characters_matters(config):
    model, ids = trained_looking(config), torch.tensor([[3, 5, 7, 7]])
    assert not torch.allclose(model(ids)[0, -1], model(ids[:, [1, 0, 2, 3]])[0, -1])


@every_form
@pytest.mark.parametrize("kind", [KVCache, StaticKVCache])
@pytest.mark.parametrize("pieces", [[1] * T, [4, 1, 6], [T]], ids=str)
@torch.inference_mode()
def test_reading_in_pieces_with_a_cache_gives_the_same_logits_as_reading_at_once(config, pieces, kind):
    model, ids = trained_looking(config).double(), torch.randint(V, (B, T))
    cache = kind(config, B, dtype=torch.float64, device="cpu")
    model(torch.randint(V, (B, 3)), cache)  # earlier content of the cache must not matter
    cache.clear()
    logits = [model(piece, cache) for piece in ids.split(pieces, dim=1)]
    torch.testing.assert_close(torch.cat(logits, dim=1), model(ids), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", [KVCache, StaticKVCache])
def test_a_forward_pass_that_fails_leaves_the_cache_as_it_was(kind):
    model, ids = trained_looking(MODERN), torch.randint(V, (B, T))
    cache = kind(MODERN, B, dtype=torch.float32, device="cpu")
    with torch.no_grad():
        model(ids[:, :5], cache)
        with pytest.raises(IndexError):
            model(ids[:, 5:] + V, cache)  # these ids are not in the vocabulary
        torch.testing.assert_close(model(ids[:, 5:], cache), model(ids)[:, 5:])


@torch.inference_mode()
def test_a_static_cache_takes_what_autocast_computes():
    model, ids = trained_looking(MODERN), torch.randint(V, (B, T))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cached = model(ids, StaticKVCache(MODERN, B, dtype=torch.float32, device="cpu"))
        torch.testing.assert_close(cached, model(ids), atol=0.5, rtol=0.1)


@pytest.mark.parametrize("place", ["embedding", "attention weights", "attention", "mlp"])
def test_dropout_acts_in_training_at_each_of_its_places(monkeypatch, place):
    """A dropout probability close to 1 at one place, and 0 at the others, changes the logits."""
    model, ids = trained_looking(MODERN).train(), torch.randint(V, (B, T))
    before = model(ids)
    block = model.blocks[0]
    if place == "embedding":
        model.config = replace(MODERN, dropout=0.9)
    elif place == "mlp":
        block.mlp.dropout = 0.9
    else:  # one setting serves two places: silence the other one
        block.attention.dropout = 0.9
        attend = self_attention.attend
        if place == "attention weights":
            monkeypatch.setattr(self_attention, "dropout", lambda x, p, training: x)
        else:
            monkeypatch.setattr(
                self_attention, "attend", lambda *a, **options: attend(*a, **options | {"dropout": 0.0})
            )
    assert not torch.allclose(model(ids), before)
    assert torch.equal(model.eval()(ids), model(ids))


def test_a_float64_model_returns_float64_logits_and_a_float32_model_float32():
    model, ids = trained_looking(MODERN), torch.randint(V, (B, T))
    single = model(ids)
    assert single.dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert model(ids).dtype == torch.float32
    double = model.double()(ids)
    assert double.dtype == torch.float64
    torch.testing.assert_close(double.float(), single, atol=1e-4, rtol=1e-4)


def test_ids_of_the_wrong_shape_are_an_error():
    with pytest.raises(ValueError, match=r"ids has shape \(5,\); expected \(B, T\)"):
        GPT(MODERN, V)(torch.zeros(5, dtype=torch.long))


def test_more_positions_than_the_context_length_are_an_error():
    model = GPT(MODERN, V)
    with pytest.raises(ValueError, match=r"17 positions do not fit into model.block_size=16"):
        model(torch.zeros(1, 17, dtype=torch.long))
    cache = KVCache(MODERN, 1)
    model(torch.zeros(1, 10, dtype=torch.long), cache)
    with pytest.raises(ValueError, match="17 positions"):
        model(torch.zeros(1, 7, dtype=torch.long), cache)


def test_capped_logits_stay_within_the_cap():
    model = trained_looking(MODERN)
    with torch.no_grad():
        model.lm_head.weight.mul_(1000)
    assert model(torch.randint(V, (B, T))).abs().max() <= 15


def test_the_seed_determines_the_initial_weights():
    def weights(seed):
        torch.manual_seed(seed)
        return GPT(MODERN, V).token_embedding.weight

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


def test_gpt2_layers_have_the_expected_number_of_parameters():
    config = ModelConfig(
        n_layer=6, n_head=6, n_embd=384, block_size=256, positions="learned", norm="layer", mlp="gelu", qk_norm=False
    )
    n = GPT(config, 65).n_parameters()
    assert n == 65 * 384 + 256 * 384 + 6 * (12 * 384**2 + 2 * 384) + 384 + 384 * 65
