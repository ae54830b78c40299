import random

import pytest
import torch
from torch import nn

from model.attention import attend
from model.scoring import Additive, uniform
from model.textbook.chapter4_heads import join_heads, split_heads
from model.textbook.chapter5a_masks import combine_masks
from model.textbook.chapter5b_layer import MultiHeadAttention
from model.textbook.chapter7b_gpt import Head

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


def test_heads_with_one_output_map_equal_single_heads_side_by_side():
    layer, x = MultiHeadAttention(H * D, H, output_map=False), torch.randn(N, T, H * D)
    heads = [Head(H * D, D, block_size=10) for _ in range(H)]
    with torch.no_grad():
        for i, head in enumerate(heads):
            for name in ("query", "key", "value"):
                getattr(head, name).weight.copy_(getattr(layer, name).weight[i * D : (i + 1) * D])
    torch.testing.assert_close(layer(x, causal=True), torch.cat([head(x) for head in heads], dim=-1))


def test_causal_attention_equals_a_triangular_attention_mask():
    layer, x = MultiHeadAttention(8, H), torch.randn(N, T, 8)
    torch.testing.assert_close(layer(x, causal=True), layer(x, attention_mask=torch.ones(T, T).tril()))


def test_each_bias_can_be_enabled_separately():
    def has_bias(**settings):
        layer = MultiHeadAttention(8, H, **settings)
        return [linear.bias is not None for linear in (layer.query, layer.key, layer.value, layer.proj)]

    assert has_bias() == [False] * 4
    assert has_bias(bias=True) == [True, True, True, False]
    assert has_bias(bias=True, output_bias=True) == [True] * 4


def test_values_without_an_output_map_keep_the_width_of_their_heads():
    layer, x = MultiHeadAttention(8, H, head_size=3, value_head_size=5, output_map=False), torch.randn(N, T, 8)
    assert layer(x).shape == (N, T, H * 5)
    q, k, v = x @ layer.query.weight.T, x @ layer.key.weight.T, x @ layer.value.weight.T
    torch.testing.assert_close(layer(x)[..., 5:], attend(q[..., 3:], k[..., 3:], v[..., 5:]))


def test_the_layer_works_with_any_score():
    x, memory = torch.randn(N, T, 8), torch.randn(N, S, 8)
    layer = MultiHeadAttention(8, H, score=uniform, output_map=False)
    expected = layer.value(memory).mean(1, keepdim=True).expand(N, T, 8)
    torch.testing.assert_close(layer(x, memory), expected)
    score = Additive(4, 4, hidden=5)
    layer = MultiHeadAttention(8, H, score=score, output_map=False)
    q, k, v = (
        split_heads(linear(y), H) for linear, y in ((layer.query, x), (layer.key, memory), (layer.value, memory))
    )
    torch.testing.assert_close(layer(x, memory), join_heads(torch.softmax(score(q, k), dim=-1) @ v))


def test_dropout_zeroes_weights_in_training_only():
    layer, x = MultiHeadAttention(8, H, dropout=0.5), torch.randn(N, T, 8)
    assert not torch.equal(layer(x), layer(x))
    layer.eval()
    assert torch.equal(layer(x), layer(x))
    torch.testing.assert_close(layer.trace(x)["output"], layer(x))


LAYER = {"width": 8, "n_head": 2, "query_size": 3, "key_size": 4, "value_size": 5}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda q, k, v: combine_masks(padding_mask=torch.ones(N, T), shape=(N, T, S)),
            r"padding_mask has shape \(3, 5\); expected \(B, S\) = \(3, 7\)",
        ),
        (
            lambda q, k, v: combine_masks(attention_mask=torch.ones(S, T), shape=(N, T, S)),
            r"attention_mask has shape \(7, 5\); expected \(T, S\) = \(5, 7\)",
        ),
        (
            lambda q, k, v: combine_masks(memory_mask=torch.ones(N, T, S), shape=(N, T, S)),
            r"memory_mask has shape \(3, 5, 7\); expected \(T, S\) = \(5, 7\)",
        ),
        (
            lambda q, k, v: MultiHeadAttention(**LAYER)(q),
            r"queries has shape \(3, 5, 6\) and .*expected floating-point numbers \(B, length, 3\)",
        ),
        (
            lambda q, k, v: MultiHeadAttention(**LAYER)(q[..., :3], k),
            r"keys has shape \(3, 7, 6\) and .*expected floating-point numbers \(B, length, 4\)",
        ),
        (
            lambda q, k, v: MultiHeadAttention(**LAYER)(q[..., :3], k[..., :4], v),
            r"values has shape \(3, 7, 6\) and .*expected floating-point numbers \(B, length, 5\)",
        ),
        (
            lambda q, k, v: MultiHeadAttention(**LAYER)(q[..., :3], k[..., :4], v[:, 1:, :5]),
            r"values has shape \(3, 6, 5\); expected \(B, S\) = \(3, 7\)",
        ),
        (
            lambda q, k, v: MultiHeadAttention(**LAYER)(q[0, ..., :3]),
            r"queries has shape \(5, 3\) and .*expected floating-point numbers \(B, length, 3\)",
        ),
        (lambda q, k, v: split_heads(q, 4), r"a width of 6 cannot be split into n_head=4"),
        (lambda q, k, v: Head(6, 3, block_size=4)(q), r"x has 5 positions; the mask has 4: raise block_size"),
    ],
)
def test_the_error_for_a_wrong_shape_gives_the_shape_and_the_expected_one(call, message):
    with pytest.raises(ValueError, match=message):
        call(torch.randn(N, T, D), torch.randn(N, S, D), torch.randn(N, S, D))
