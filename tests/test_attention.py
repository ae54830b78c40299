import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from model.attention import CausalSelfAttention, Head, attend, attend_fused, causal_mask, choose_form
from model.config import ModelConfig

B, T, C, H, D = 2, 7, 12, 3, 5  # all different: a wrong transpose fails loudly

pytestmark = pytest.mark.usefixtures("float64")


def make_layer(**settings):
    torch.manual_seed(1)
    defaults = {"n_embd": C, "n_head": H, "head_size": D, "positions": "learned", "qk_norm": False}
    return CausalSelfAttention(ModelConfig(**defaults | settings))


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


@pytest.mark.parametrize(("n_queries", "n_keys"), [(7, 7), (1, 1), (1, 9), (4, 9)])
def test_the_fused_form_equals_the_explicit_one_in_values_and_gradients(n_queries, n_keys):
    torch.manual_seed(2)
    q, k, v = (torch.randn(B, H, n, D, requires_grad=True) for n in (n_queries, n_keys, n_keys))
    explicit = attend(q, k, v, visible=causal_mask(n_queries, n_keys))
    fused = attend_fused(q, k, v)
    torch.testing.assert_close(fused, explicit)
    weight = torch.randn_like(explicit)
    expected = torch.autograd.grad((explicit * weight).sum(), (q, k, v))
    actual = torch.autograd.grad((fused * weight).sum(), (q, k, v))
    torch.testing.assert_close(actual, expected)


def test_attention_without_a_mask_equals_pytorchs_scaled_dot_product():
    q, k, v = torch.randn(B, 4, D), torch.randn(B, 6, D), torch.randn(B, 6, 2)
    torch.testing.assert_close(attend(q, k, v), F.scaled_dot_product_attention(q, k, v))


def test_equal_scores_under_the_causal_mask_give_the_plain_average_of_the_past():
    v = torch.randn(B, T, D)
    zeros = torch.zeros(B, T, D)
    averages = v.cumsum(1) / torch.arange(1, T + 1)[:, None]
    torch.testing.assert_close(attend(zeros, zeros, v, visible=causal_mask(T, T)), averages)


def test_the_mask_may_be_the_textbooks_triangle_of_ones_and_zeros():
    q, k, v = (torch.randn(B, T, D) for _ in range(3))
    expected = attend(q, k, v, visible=causal_mask(T, T))
    torch.testing.assert_close(attend(q, k, v, visible=torch.tril(torch.ones(T, T))), expected)


def test_fewer_queries_than_keys_are_the_last_positions():
    assert causal_mask(2, 4).tolist() == [[True, True, True, False], [True, True, True, True]]


def test_future_positions_cannot_change_what_a_position_sees():
    layer, x = make_layer(), torch.randn(B, T, C)
    changed = x.clone()
    changed[:, 4:] += 1
    before, after = layer(x), layer(changed)
    torch.testing.assert_close(after[:, :4], before[:, :4])
    assert not torch.allclose(after[:, 4:], before[:, 4:])


def test_dropout_of_weights_keeps_their_mean_and_rests_outside_training():
    torch.manual_seed(3)
    q, k, v = torch.zeros(1, 1, D), torch.zeros(1, 4, D), torch.ones(1, 4, 1)
    draws = torch.stack([attend(q, k, v, dropout=0.25) for _ in range(4000)])
    assert set(draws.round(decimals=6).unique().tolist()) == {round(n / 3, 6) for n in range(5)}
    assert abs(draws.mean() - 1) < 5 * math.sqrt(1 / 12 / 4000)  # variance of the mean of 4: (1/3) / 4
    layer, x = make_layer(dropout=0.5), torch.randn(B, T, C)
    assert not torch.equal(layer(x), layer(x))
    layer.eval()
    assert torch.equal(layer(x), layer(x))


def test_auto_takes_the_explicit_form_only_where_the_fused_backward_pass_is_slow():
    def chosen(dtype, requires_grad=True, S=8, wanted="auto", dropout=0.0):
        q, k = torch.zeros(1, 2, 1, 4, dtype=dtype, requires_grad=requires_grad), torch.zeros(1, 2, S, 4, dtype=dtype)
        return choose_form(wanted, q, k, dropout=dropout)

    assert chosen(torch.bfloat16) == "explicit"
    assert chosen(torch.bfloat16, requires_grad=False) == "fused"
    assert chosen(torch.bfloat16, S=513) == "fused"
    assert chosen(torch.float32) == "fused"
    assert chosen(torch.float32, dropout=0.1) == "explicit"
    assert chosen(torch.bfloat16, wanted="fused") == "fused"
    assert chosen(torch.float32, wanted="explicit") == "explicit"
