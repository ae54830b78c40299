import math
import random
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from model.scoring import uniform
from textbook.chapter4_heads import heads_by_einsum, heads_by_loop, heads_in_batch, split_heads
from textbook.chapter5_layer import MultiHeadAttention, combine_masks, one_head_at_a_time
from textbook.chapter9_gpt import Head

N, T, S, H, D = 3, 5, 7, 2, 6

pytestmark = pytest.mark.usefixtures("float64")


def gradients(y, inputs):
    torch.manual_seed(8)
    return torch.autograd.grad((y * torch.randn(y.shape)).sum(), inputs)


@pytest.mark.parametrize("seed", range(20))
def test_the_layer_equals_pytorchs_multihead_attention_for_random_shapes_and_masks(seed):
    draw = random.Random(seed)
    torch.manual_seed(seed)
    n_head, head_size, n, t, s = (draw.randint(1, 5) for _ in range(5))
    width, key_size, value_size = n_head * head_size, draw.randint(1, 9), draw.randint(1, 9)
    bias = draw.random() < 0.5
    ours = MultiHeadAttention(width, n_head, key_size=key_size, value_size=value_size, bias=bias, output_bias=bias)
    theirs = nn.MultiheadAttention(width, n_head, bias=bias, batch_first=True, kdim=key_size, vdim=value_size)
    with torch.no_grad():
        own_maps = {"q_proj_weight": ours.query, "k_proj_weight": ours.key, "v_proj_weight": ours.value}
        for name, linear in own_maps.items():
            if theirs._qkv_same_embed_dim:
                theirs.in_proj_weight.view(3, width, width)[list(own_maps).index(name)].copy_(linear.weight)
            else:
                getattr(theirs, name).copy_(linear.weight)
        if bias:
            theirs.in_proj_bias.copy_(torch.cat([linear.bias for linear in own_maps.values()]))
        theirs.out_proj.load_state_dict(ours.proj.state_dict())
    inputs = [
        torch.randn(*shape, requires_grad=True) for shape in ((n, t, width), (n, s, key_size), (n, s, value_size))
    ]
    padding, between = torch.rand(n, s) < 0.7, torch.rand(t, s) < 0.7
    padding[:, 0] = between[:, 0] = True
    actual = ours(*inputs, padding_mask=padding, memory_mask=between)
    expected, _ = theirs(*inputs, key_padding_mask=~padding, attn_mask=~between, need_weights=False)
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(gradients(actual, inputs), gradients(expected, inputs))


def test_the_heads_of_the_layer_use_blocks_of_columns_of_its_maps_and_are_joined_and_mapped():
    layer = MultiHeadAttention(16, H, query_size=10, head_size=3, value_head_size=5, output_bias=True)
    x, heads = torch.randn(N, T, 10), []
    for h in range(H):
        maps = ((layer.query, 3), (layer.key, 3), (layer.value, 5))
        q, k, v = (x @ linear.weight.T[:, h * d : (h + 1) * d] for linear, d in maps)
        heads.append(torch.softmax(q @ k.mT / math.sqrt(3), dim=-1) @ v)
    expected = layer.proj(torch.cat(heads, dim=-1))
    torch.testing.assert_close(layer(x), expected)
    torch.testing.assert_close(one_head_at_a_time(layer, x), expected)


def test_every_form_of_heads_equals_pytorchs_attention_with_slices_of_the_width():
    q, k, v = torch.randn(3, N, T, H * D)
    slices = [slice(h * D, (h + 1) * D) for h in range(H)]
    expected = [F.scaled_dot_product_attention(q[..., s], k[..., s], v[..., s]) for s in slices]
    for form in (heads_by_loop, heads_in_batch, heads_by_einsum):
        torch.testing.assert_close(form(q, k, v, H), torch.cat(expected, dim=-1))


def test_zero_means_hidden_and_masks_of_any_type_combine():
    layer, x, memory = MultiHeadAttention(8, H), torch.randn(N, T, 8), torch.randn(N, S, 8)
    padding, attention, between = (torch.rand(shape) < 0.7 for shape in ((N, S), (T, S), (T, S)))
    padding[:, 0] = attention[:, 0] = between[:, 0] = True  # every query sees at least one key
    masks = {"padding_mask": padding.long(), "attention_mask": attention.double(), "memory_mask": between}
    traced = layer.trace(x, memory, **masks)
    scores = traced["scores"].masked_fill(~(padding[:, None, None, :] & attention & between), -math.inf)
    torch.testing.assert_close(traced["weights"], scores.softmax(-1))
    torch.testing.assert_close(layer(x, causal=True), layer(x, attention_mask=torch.ones(T, T).tril()))


def test_a_query_that_sees_no_key_gets_weights_of_zero_and_passes_on_no_gradient():
    layer, x = MultiHeadAttention(8, H), torch.randn(N, T, 8, requires_grad=True)
    padding = torch.ones(N, T)
    padding[0], padding[1, :2] = 0, 0
    traced = layer.trace(x, padding_mask=padding, causal=True)
    sums = torch.ones(N, H, T)
    sums[0], sums[1, :, :2] = 0, 0
    torch.testing.assert_close(traced["weights"].sum(-1), sums)
    (gradient,) = gradients(traced["output"], [x])
    assert gradient.isfinite().all()
    assert (gradient[0] == 0).all() and gradient[1:].abs().sum() > 0


def test_the_layer_works_with_another_score():
    x, memory = torch.randn(N, T, 8), torch.randn(N, S, 8)
    layer = MultiHeadAttention(8, H, score=uniform, output_map=False)
    torch.testing.assert_close(layer(x, memory), layer.value(memory).mean(1, keepdim=True).expand(N, T, 8))


LAYER = MultiHeadAttention(8, 2, query_size=3, key_size=4, value_size=5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda q, k, v: combine_masks(padding_mask=q[..., 0], shape=(N, T, S)), r"(3, 5); expected (B, S) = (3, 7)"),
        (lambda q, k, v: combine_masks(memory_mask=k[0, :, 1:], shape=(N, T, S)), r"(7, 5); expected (T, S) = (5, 7)"),
        (lambda q, k, v: LAYER(q), "queries has shape (3, 5, 6); expected (B, length, 3)"),
        (lambda q, k, v: LAYER(q[..., :3], k), "keys has shape (3, 7, 6); expected (B, length, 4)"),
        (lambda q, k, v: LAYER(q[..., :3], k[..., :4], v), "values has shape (3, 7, 6); expected (B, length, 5)"),
        (lambda q, k, v: LAYER(q[..., :3], k[..., :4], v[:, 1:, :5]), "(3, 6, 5); expected (B, S) = (3, 7)"),
        (lambda q, k, v: LAYER(q[..., :3], k[1:, :, :4], v[1:, :, :5]), "(2, 7, 4); expected B = 3, that of"),
        (lambda q, k, v: MultiHeadAttention(6, 2)(k, q, causal=True), "attention to 5 keys allows at most as many"),
        (lambda q, k, v: MultiHeadAttention(6, 2, key_head_size=4)(q), "expected the width of k, 4"),
        (lambda q, k, v: LAYER(q[0, ..., :3]), "queries has shape (5, 3); expected (B, length, 3)"),
        (lambda q, k, v: Head(6, 3, block_size=4)(q), "x has 5 positions; the mask has 4: raise block_size"),
        (lambda q, k, v: MultiHeadAttention(16, 3), "width=16 cannot be split into n_head=3"),
        (lambda q, k, v: split_heads(q, 4), "a width of 6 cannot be split into n_head=4"),
    ],
)
def test_the_error_for_a_wrong_shape_gives_the_shape_and_the_expected_one(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call(torch.randn(N, T, D), torch.randn(N, S, D), torch.randn(N, S, D))
