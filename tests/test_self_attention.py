import math

import pytest
import torch
from torch import nn

from model.attention import Head, causal_mask
from model.config import ModelConfig
from model.self_attention import SelfAttention

B, T, C, H, D = 2, 7, 12, 3, 5  # all different: a wrong transpose fails loudly

pytestmark = pytest.mark.usefixtures("float64")


def make_config(**settings):
    defaults = {"n_embd": C, "n_head": H, "head_size": D, "positions": "learned", "qk_norm": False}
    return ModelConfig(**defaults | settings)


def make_layer(**settings):
    torch.manual_seed(1)
    return SelfAttention(make_config(**settings))


def test_a_head_is_the_weighted_sum_of_past_values_computed_position_by_position():
    torch.manual_seed(0)
    head, x = Head(C, D, block_size=T).requires_grad_(False), torch.randn(B, T, C)
    y = head(x)
    for b in range(B):
        for t in range(T):
            q = head.query.weight @ x[b, t]
            scores = [float(q @ (head.key.weight @ x[b, s])) / math.sqrt(D) for s in range(t + 1)]
            total = sum(map(math.exp, scores))
            expected = sum(math.exp(w) / total * (head.value.weight @ x[b, s]) for s, w in enumerate(scores))
            torch.testing.assert_close(y[b, t], expected)


@pytest.mark.parametrize("form", ["explicit", "fused"])
@pytest.mark.parametrize("bias", [False, True])
def test_the_layer_equals_its_heads_concatenated_and_mapped_back(form, bias):
    layer, x = make_layer(attention=form, bias=bias), torch.randn(B, T, C)
    heads = [Head(C, D, block_size=T, bias=bias) for _ in range(H)]
    width = H * D
    with torch.no_grad():
        for h, head in enumerate(heads):
            for part, linear in enumerate((head.query, head.key, head.value)):
                rows = slice(part * width + h * D, part * width + (h + 1) * D)
                linear.weight.copy_(layer.qkv.weight[rows])
                if bias:
                    linear.bias.copy_(layer.qkv.bias[rows])
    expected = layer.proj(torch.cat([head(x) for head in heads], dim=-1))
    torch.testing.assert_close(layer(x), expected)


def test_the_layer_equals_pytorchs_multihead_attention_in_values_and_gradients():
    layer, x = make_layer(head_size=None, bias=True), torch.randn(B, T, C, requires_grad=True)
    oracle = nn.MultiheadAttention(C, H, batch_first=True)
    with torch.no_grad():
        oracle.in_proj_weight.copy_(layer.qkv.weight)
        oracle.in_proj_bias.copy_(layer.qkv.bias)
        oracle.out_proj.load_state_dict(layer.proj.state_dict())
    expected, _ = oracle(x, x, x, attn_mask=~causal_mask(T, T), need_weights=False)
    actual = layer(x)
    torch.testing.assert_close(actual, expected)
    weight = torch.randn_like(expected)
    (expected_gradient,) = torch.autograd.grad((expected * weight).sum(), x)
    (actual_gradient,) = torch.autograd.grad((actual * weight).sum(), x)
    torch.testing.assert_close(actual_gradient, expected_gradient)


def test_future_positions_cannot_change_what_a_position_sees():
    layer, x = make_layer(), torch.randn(B, T, C)
    changed = x.clone()
    changed[:, 4:] += 1
    before, after = layer(x), layer(changed)
    torch.testing.assert_close(after[:, :4], before[:, :4])
    assert not torch.allclose(after[:, 4:], before[:, 4:])


def test_dropout_rests_outside_training():
    layer, x = make_layer(dropout=0.5), torch.randn(B, T, C)
    assert not torch.equal(layer(x), layer(x))
    layer.eval()
    assert torch.equal(layer(x), layer(x))


def test_shared_keys_and_values_equal_heads_whose_maps_are_copies():
    H, K = 6, 2
    shared, x = make_layer(n_head=H, n_kv_head=K), torch.randn(B, T, C)
    whole = make_layer(n_head=H)
    assert shared.qkv.weight.shape == ((H + 2 * K) * D, C)
    q, k, v = shared.qkv.weight.detach().unflatten(0, (-1, D)).split((H, K, K))
    copies = torch.cat((q, *(maps.repeat_interleave(H // K, dim=0) for maps in (k, v))))
    with torch.no_grad():
        whole.qkv.weight.copy_(copies.flatten(0, 1))
        whole.proj.load_state_dict(shared.proj.state_dict())
    torch.testing.assert_close(shared(x), whole(x))


def test_without_the_causal_mask_every_position_changes_every_other():
    layer = SelfAttention(make_config(), causal=False)
    x = torch.randn(1, T, C, requires_grad=True)
    for t in range(T):
        (gradient,) = torch.autograd.grad(layer(x)[0, t].sum(), x)
        assert (gradient[0].abs().sum(-1) > 0).all()


@pytest.mark.parametrize("form", ["explicit", "fused"])
def test_padding_changes_nothing_for_the_positions_that_are_there(form):
    layer = SelfAttention(make_config(attention=form), causal=False)
    x = torch.randn(2, T, C)
    padding_mask = torch.tensor([[1] * T, [1] * 4 + [0] * (T - 4)])
    y = layer(x, padding_mask=padding_mask)
    torch.testing.assert_close(y[:1], layer(x[:1]))
    torch.testing.assert_close(y[1:, :4], layer(x[1:, :4]))


@pytest.mark.parametrize("shape", [(B, T, C + 1), (T, C)])
def test_an_input_of_another_shape_is_named_with_what_was_expected(shape):
    for layer in (make_layer(), Head(C, D, block_size=T)):
        with pytest.raises(ValueError, match=rf"x has shape .{str(shape)[1:-1]}.; expected .N, length, {C}."):
            layer(torch.randn(shape))
    with pytest.raises(ValueError, match=rf"padding_mask has shape .{T}, {B}.; expected .N, S. = .{B}, {T}."):
        make_layer()(torch.randn(B, T, C), padding_mask=torch.ones(T, B))
