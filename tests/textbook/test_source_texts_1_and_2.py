"""The statements of the source texts on attention, texts 1 and 2."""

import math

import pytest
import torch
from torch import randn
from torch.nn.functional import scaled_dot_product_attention

from textbook.chapter4_heads import heads_by_loop, heads_in_batch
from textbook.chapter5_layer import MultiHeadAttention, one_head_at_a_time

N, T, S, H, D = 3, 5, 7, 2, 6

pytestmark = pytest.mark.usefixtures("float64")


# 1. Sequence modelling and multi-head attention


def test_text_1_a_width_that_heads_do_not_divide_is_an_error():
    with pytest.raises(ValueError, match="width=16 cannot be split into n_head=3"):
        MultiHeadAttention(16, 3)


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


# 2. Multi-head attention from tensors


def test_text_2_queries_keys_and_values_of_all_heads_can_be_given_as_batch_length_and_width():
    q, k, v = randn(N, T, H * D), randn(N, T, H * D), randn(N, T, H * D)
    expected = [scaled_dot_product_attention(*(x[..., h * D : (h + 1) * D] for x in (q, k, v))) for h in range(H)]
    for form in (heads_by_loop, heads_in_batch):
        torch.testing.assert_close(form(q, k, v, H), torch.cat(expected, dim=-1))


def test_text_2_the_heads_of_the_layer_use_blocks_of_columns_of_its_maps_and_are_joined_and_mapped():
    layer, x = MultiHeadAttention(16, H, query_size=10, head_size=3), randn(N, T, 10)
    heads = []
    for h in range(H):
        maps = (layer.query, layer.key, layer.value)
        q, k, v = (x @ linear.weight.T[:, 3 * h : 3 * (h + 1)] for linear in maps)
        heads.append(torch.softmax(q @ k.mT / math.sqrt(3), dim=-1) @ v)
    expected = layer.proj(torch.cat(heads, dim=-1))
    torch.testing.assert_close(layer(x), expected)
    torch.testing.assert_close(one_head_at_a_time(layer, x), expected)
