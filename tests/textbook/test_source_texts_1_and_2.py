"""The statements of the source texts on attention, with results to their printed digits: texts 1 and 2."""

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from model.attention import attend
from model.scoring import dot, scaled_dot
from textbook.chapter4_heads import heads_by_einsum, heads_by_loop, heads_in_batch, join_heads, split_heads
from textbook.chapter5_layer import MultiHeadAttention, one_head_at_a_time

N, T, S, H, D = 3, 5, 7, 2, 6

pytestmark = pytest.mark.usefixtures("float64")


def randn(*shape):
    return torch.randn(*shape)


# 1. Sequence modelling and multi-head attention


class EinsumAttention(nn.Module):
    """Multi-head attention whose products are named by their axes: batch, query, key, head, channel."""

    def __init__(self, width, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.to_queries, self.to_keys, self.to_values = (nn.Linear(width, width) for _ in range(3))
        self.unify = nn.Linear(width, width)

    def forward(self, x, memory, mask=None):
        """x (batch, query, width), memory (batch, key, width), mask (batch, query, key) with 0 where hidden."""
        queries, keys, values = (
            linear(y).reshape(*y.shape[:2], self.n_heads, -1)
            for linear, y in ((self.to_queries, x), (self.to_keys, memory), (self.to_values, memory))
        )
        energy = torch.einsum("bqhc,bkhc->bhqk", queries, keys)
        if mask is not None:
            energy = energy.masked_fill(mask[:, None] == 0, float("-inf"))
        weights = torch.softmax(energy / queries.shape[-1] ** 0.5, dim=3)
        pooled = torch.einsum("bhqk,bkhc->bqhc", weights, values)
        return self.unify(pooled.flatten(2))


def test_text_1_attention_is_softmax_of_scaled_products_times_values():
    q, k, v = randn(N, T, D), randn(N, S, D), randn(N, S, 4)
    expected = torch.softmax(q @ k.mT / math.sqrt(D), dim=-1) @ v
    torch.testing.assert_close(attend(q, k, v), expected)


def test_text_1_separate_maps_for_queries_and_keys_make_attention_asymmetric():
    x = randn(1, T, D)
    symmetric, mapped = scaled_dot(x, x), scaled_dot(nn.Linear(D, D)(x), nn.Linear(D, D)(x))
    torch.testing.assert_close(symmetric, symmetric.mT)
    assert not torch.allclose(mapped, mapped.mT)


def test_text_1_dividing_by_the_root_of_the_width_keeps_the_variance_and_so_the_gradients():
    torch.manual_seed(0)
    width = 256
    q, k = randn(200, width), randn(200, width)
    assert abs(scaled_dot(q, k).var() - 1) < 0.05
    assert abs(dot(q, k).var() / width - 1) < 0.05

    def gradient(score):
        scores = score(q, k).detach().requires_grad_()
        torch.softmax(scores, dim=-1)[:, 0].sum().backward()
        return scores.grad.abs().mean(), torch.softmax(scores, dim=-1).amax(-1).mean()

    (scaled, scaled_peak), (unscaled, unscaled_peak) = gradient(scaled_dot), gradient(dot)
    assert unscaled_peak > 0.8 > 0.1 > scaled_peak  # without the division, nearly one-hot
    assert unscaled < scaled / 5


def test_text_1_heads_are_slices_of_the_width_attended_separately_and_joined():
    q, k, v = randn(N, T, H * D), randn(N, S, H * D), randn(N, S, H * D)
    slices = [slice(h * D, (h + 1) * D) for h in range(H)]
    expected = torch.cat([attend(q[..., s], k[..., s], v[..., s]) for s in slices], dim=-1)
    torch.testing.assert_close(join_heads(attend(*(split_heads(x, H) for x in (q, k, v)))), expected)


def test_text_1_a_width_that_heads_do_not_divide_is_an_error():
    with pytest.raises(ValueError, match="width=16 cannot be split into n_head=3"):
        MultiHeadAttention(16, 3)
    with pytest.raises(ValueError, match="a width of 16 cannot be split into n_head=3"):
        split_heads(randn(N, T, 16), 3)


def test_text_1_self_attention_is_cross_attention_of_a_sequence_to_itself():
    layer, x, memory = MultiHeadAttention(8, H), randn(N, T, 8), randn(N, S, 8)
    torch.testing.assert_close(layer(x), layer(x, x, x))
    assert layer(x, memory).shape == (N, T, 8)  # keys and values have a different length


def test_text_1_zero_means_hidden_and_the_three_masks_combine():
    layer, x, memory = MultiHeadAttention(8, H), randn(N, T, 8), randn(N, S, 8)
    padding, attention, between = (torch.rand(shape) < 0.7 for shape in ((N, S), (T, S), (T, S)))
    padding[:, 0] = attention[:, 0] = between[:, 0] = True  # every query sees at least one key
    traced = layer.trace(x, memory, padding_mask=padding.long(), attention_mask=attention.double(), memory_mask=between)
    visible = padding[:, None, None, :] & attention & between
    scores = traced["scores"].masked_fill(~visible, -math.inf)
    torch.testing.assert_close(traced["weights"], scores.softmax(-1))
    assert (traced["weights"][(~visible).expand(N, H, T, S)] == 0).all()


def test_text_1_masks_are_keyword_arguments():
    layer, x, memory, padding = MultiHeadAttention(8, H), randn(N, T, 8), randn(N, S, 8), torch.ones(N, S)
    with pytest.raises(TypeError, match="positional arguments"):
        layer(x, memory, memory, padding)
    with pytest.raises(ValueError, match=r"values has shape \(3, 7\)"):
        layer(x, memory, padding)


def test_text_1_keys_have_width_d_k_and_values_another_width_d_v():
    layer, x, memory = MultiHeadAttention(8, H, head_size=3, value_head_size=5), randn(N, T, 8), randn(N, S, 8)
    traced = layer.trace(x, memory)
    assert (traced["K"].shape, traced["V"].shape) == ((N, H, S, 3), (N, H, S, 5))
    assert layer.proj.weight.shape == (8, H * 5)
    torch.testing.assert_close(traced["scores"], traced["Q"] @ traced["K"].mT / math.sqrt(3))
    assert layer(x, memory).shape == (N, T, 8)


def test_text_1_the_layer_equals_one_written_with_einsum_over_batch_query_key_head_and_channel():
    layer = MultiHeadAttention(H * D, H, bias=True, output_bias=True)
    scratch, x, memory = EinsumAttention(H * D, H), randn(N, T, H * D), randn(N, S, H * D)
    names = {"to_queries": layer.query, "to_keys": layer.key, "to_values": layer.value, "unify": layer.proj}
    for name, linear in names.items():
        getattr(scratch, name).load_state_dict(linear.state_dict())
    mask = (torch.rand(N, T, S) < 0.7).index_fill(2, torch.tensor([0]), True)
    torch.testing.assert_close(layer(x, memory), scratch(x, memory))
    padding, between = mask[:, 0], mask[0]
    expected = scratch(x, memory, mask=padding[:, None] & between)
    torch.testing.assert_close(layer(x, memory, padding_mask=padding, memory_mask=between), expected)


# 2. Multi-head attention from tensors


def test_text_2_the_input_can_have_another_width_and_is_mapped_without_bias():
    layer = MultiHeadAttention(16, 2, query_size=10, key_size=11, value_size=12)
    assert [tuple(p.shape) for p in layer.parameters()] == [(16, 10), (16, 11), (16, 12), (16, 16)]
    assert layer(randn(N, T, 10), randn(N, S, 11), randn(N, S, 12)).shape == (N, T, 16)
    layer = MultiHeadAttention(16, 2, query_size=10, key_size=11)  # values come from the keys
    assert layer(randn(N, T, 10), randn(N, S, 11)).shape == (N, T, 16)


def test_text_2_queries_keys_and_values_of_all_heads_can_be_given_as_batch_length_and_width():
    q, k, v = randn(N, T, H * D), randn(N, T, H * D), randn(N, T, H * D)
    expected = [scaled_dot_product_attention(*(x[..., h * D : (h + 1) * D] for x in (q, k, v))) for h in range(H)]
    for form in (heads_by_loop, heads_in_batch, heads_by_einsum):
        torch.testing.assert_close(form(q, k, v, H), torch.cat(expected, dim=-1))


def test_text_2_the_heads_of_the_layer_use_blocks_of_columns_of_its_maps_and_are_joined_and_mapped():
    layer, x = (
        MultiHeadAttention(16, H, query_size=10, head_size=3, value_head_size=5, output_bias=True),
        randn(N, T, 10),
    )
    heads = []
    for h in range(H):
        maps = ((layer.query, 3), (layer.key, 3), (layer.value, 5))
        q, k, v = (x @ linear.weight.T[:, h * d : (h + 1) * d] for linear, d in maps)
        heads.append(torch.softmax(q @ k.mT / math.sqrt(3), dim=-1) @ v)
    expected = layer.proj(torch.cat(heads, dim=-1))
    torch.testing.assert_close(layer(x), expected)
    torch.testing.assert_close(one_head_at_a_time(layer, x), expected)
