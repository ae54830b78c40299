import math
import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from model.attention import (
    MultiHeadAttention,
    attend,
    attend_fused,
    causal_mask,
    choose_form,
    combine_masks,
    masked_softmax,
)
from model.scoring import dot, scaled_dot
from model.trace import trace_attention

N, T, S, H, D = 3, 5, 7, 2, 6

pytestmark = pytest.mark.usefixtures("float64")


def gradients(y, inputs):
    torch.manual_seed(8)
    return torch.autograd.grad((y * torch.randn(y.shape)).sum(), inputs, retain_graph=True, allow_unused=True)


def random_case(seed):
    """Queries, keys, values of random sizes, with a random mask, each query seeing at least one key."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    n, h, t, s, d, d_v = (draw.randint(1, 6) for _ in range(6))
    q, k, v = (torch.randn(n, h, *size, requires_grad=True) for size in ((t, d), (s, d), (s, d_v)))
    visible = torch.rand(draw.choice([(n, h, t, s), (n, 1, t, s), (t, s), (n, 1, 1, s)])) < 0.6
    visible[..., draw.randrange(s)] = True
    return q, k, v, visible


@pytest.mark.parametrize("seed", range(40))
def test_attention_equals_pytorchs_in_values_and_gradients_over_random_shapes_and_masks(seed):
    q, k, v, visible = random_case(seed)
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=visible.expand(*q.shape[:-1], k.size(-2)))
    for actual in (attend(q, k, v, visible=visible), attend_fused(q, k, v, visible=visible)):
        torch.testing.assert_close(actual, expected)
        torch.testing.assert_close(gradients(actual, (q, k, v)), gradients(expected, (q, k, v)))


@pytest.mark.parametrize(("n_queries", "n_keys"), [(7, 7), (1, 1), (1, 9), (4, 9)])
@pytest.mark.parametrize("masked", [False, True])
def test_the_fused_form_equals_the_explicit_one_where_it_is_causal(n_queries, n_keys, masked):
    q, k, v = (torch.randn(N, H, n, D, requires_grad=True) for n in (n_queries, n_keys, n_keys))
    visible = torch.rand(N, 1, 1, n_keys) < 0.5 if masked else None  # blind queries included
    explicit = attend(q, k, v, visible=visible, causal=True)
    fused = attend_fused(q, k, v, visible=visible, causal=True)
    torch.testing.assert_close(fused, explicit)
    torch.testing.assert_close(gradients(fused, (q, k, v)), gradients(explicit, (q, k, v)))


@pytest.mark.parametrize("seed", range(20))
def test_the_layer_equals_pytorchs_multihead_attention_over_random_shapes_and_masks(seed):
    draw = random.Random(seed)
    torch.manual_seed(seed)
    n_head, head_size, n, t, s = (draw.randint(1, 5) for _ in range(5))
    width, key_size, value_size = n_head * head_size, draw.randint(1, 9), draw.randint(1, 9)
    bias = draw.random() < 0.5
    ours = MultiHeadAttention(width, n_head, key_size=key_size, value_size=value_size, bias=bias)
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


@pytest.mark.parametrize("attention", [attend, attend_fused])
def test_a_query_from_which_all_is_hidden_takes_nothing_and_learns_nothing(attention):
    q, k, v = (torch.randn(N, H, n, D, requires_grad=True) for n in (T, S, S))
    visible = torch.rand(N, 1, T, S) < 0.5
    visible[0] = False
    visible[1, :, 2] = False
    y = attention(q, k, v, visible=visible)
    assert (y[0] == 0).all()
    assert (y[1, :, 2] == 0).all()
    for gradient in gradients(y, (q, k, v)):
        assert gradient.isfinite().all()
        assert (gradient[0] == 0).all()
        assert gradient[1:].abs().sum() > 0


def test_weights_of_a_blind_query_are_zero_and_others_sum_to_one():
    visible = torch.tensor([[1, 0, 1], [0, 0, 0]])
    weights = masked_softmax(torch.randn(2, 3), visible=visible)
    torch.testing.assert_close(weights.sum(-1), torch.tensor([1.0, 0.0]))
    assert (weights[visible == 0] == 0).all()


def test_hidden_values_have_no_influence_even_when_they_are_huge():
    q, k, v = (torch.randn(N, n, D) for n in (T, S, S))
    visible = torch.ones(T, S, dtype=torch.bool)
    visible[:, 3] = False
    expected = attend(q, k, v, visible=visible)
    k[:, 3], v[:, 3] = 1e300, 1e300
    torch.testing.assert_close(attend(q, k, v, visible=visible), expected)


def test_the_mask_may_be_the_textbooks_triangle_of_ones_and_zeros():
    q, k, v = (torch.randn(N, T, D) for _ in range(3))
    triangle = torch.tril(torch.ones(T, T))
    torch.testing.assert_close(attend(q, k, v, visible=triangle), attend(q, k, v, causal=True))


def test_fewer_queries_than_keys_are_the_last_positions():
    assert causal_mask(2, 4).tolist() == [[True, True, True, False], [True, True, True, True]]


def test_dropout_of_weights_keeps_their_mean():
    torch.manual_seed(3)
    q, k, v = torch.zeros(1, 1, D), torch.zeros(1, 4, D), torch.ones(1, 4, 1)
    draws = torch.stack([attend(q, k, v, dropout=0.25) for _ in range(4000)])
    assert set(draws.round(decimals=6).unique().tolist()) == {round(n / 3, 6) for n in range(5)}
    assert abs(draws.mean() - 1) < 5 * math.sqrt(1 / 12 / 4000)  # variance of the mean of 4: (1/3) / 4


def test_a_trace_ends_in_what_the_layer_computes():
    layer, x, memory = MultiHeadAttention(8, H), torch.randn(N, T, 8), torch.randn(N, S, 8)
    padding = torch.rand(N, S) < 0.5
    torch.testing.assert_close(
        trace_attention(layer, x, memory, padding_mask=padding)["result"], layer(x, memory, padding_mask=padding)
    )
    torch.testing.assert_close(trace_attention(layer, x, causal=True)["result"], layer(x, causal=True))


def test_a_memory_that_is_mapped_once_gives_what_it_gives_mapped_each_time():
    layer, memory = MultiHeadAttention(8, H), torch.randn(N, S, 8)
    mapped = layer.keys_and_values(memory, memory)
    for x in torch.randn(3, N, T, 8):
        torch.testing.assert_close(layer.attend_to(layer.queries(x), *mapped), layer(x, memory))


def test_auto_takes_the_explicit_form_only_where_the_fused_one_is_slow_or_unable():
    def chosen(dtype, requires_grad=True, S=8, wanted="auto", dropout=0.0, score=scaled_dot, causal=False):
        q, k = torch.zeros(1, 2, 1, 4, dtype=dtype, requires_grad=requires_grad), torch.zeros(1, 2, S, 4, dtype=dtype)
        return choose_form(wanted, score, q, k, dropout=dropout, simply_causal=causal)

    assert chosen(torch.bfloat16) == "explicit"
    assert chosen(torch.bfloat16, causal=True) == "by hand"
    assert chosen(torch.float32, causal=True, dropout=0.1) == "by hand"
    assert chosen(torch.float32, causal=True) == "fused"
    assert chosen(torch.bfloat16, causal=True, wanted="explicit") == "explicit"
    assert chosen(torch.bfloat16, requires_grad=False) == "fused"
    assert chosen(torch.bfloat16, S=513) == "fused"
    assert chosen(torch.float32) == "fused"
    assert chosen(torch.float32, dropout=0.1) == "explicit"
    assert chosen(torch.float32, score=dot) == "explicit"
    assert chosen(torch.bfloat16, wanted="fused") == "fused"
    assert chosen(torch.float32, wanted="explicit") == "explicit"


LAYER = {"width": 8, "n_head": 2, "query_size": 3, "key_size": 4, "value_size": 5}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda q, k, v: attend(q, k[:2], v), r"k has shape \(2, 7, 6\); expected the leading dimensions \(3,\) of q"),
        (lambda q, k, v: attend(q, k, v[:, 1:]), r"v has shape \(3, 6, 6\); expected \(3, 7\), those of k"),
        (lambda q, k, v: attend(k, q, q, causal=True), r"q has shape \(3, 7, 6\); expected at most .* the 5 keys"),
        (
            lambda q, k, v: attend(q, k, v, visible=torch.ones(S, T)),
            r"visible has shape \(7, 5\); expected one that broadcasts to \(3, 5, 7\)",
        ),
        (lambda q, k, v: attend(q, k, v, visible=torch.ones(2, 3, T, S)), "visible has shape"),
        (lambda q, k, v: attend(q[..., 1:], k, v), r"q has shape \(3, 5, 5\); expected a width of 6, that of k"),
        (
            lambda q, k, v: combine_masks(torch.ones(N, T), shape=(N, T, S)),
            r"padding_mask has shape \(3, 5\); expected \(N, S\) = \(3, 7\)",
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
            r"queries has shape \(3, 5, 6\); expected \(N, length, 3\)",
        ),
        (
            lambda q, k, v: MultiHeadAttention(**LAYER)(q[..., :3], k),
            r"keys has shape \(3, 7, 6\); expected \(N, length, 4\)",
        ),
        (
            lambda q, k, v: MultiHeadAttention(**LAYER)(q[..., :3], k[..., :4], v),
            r"values has shape \(3, 7, 6\); expected \(N, length, 5\)",
        ),
        (
            lambda q, k, v: MultiHeadAttention(**LAYER)(q[..., :3], k[..., :4], v[:, 1:, :5]),
            r"values has shape \(3, 6, 5\); expected \(N, S\) = \(3, 7\)",
        ),
        (
            lambda q, k, v: MultiHeadAttention(**LAYER)(q[0, ..., :3]),
            r"queries has shape \(5, 3\); expected \(N, length, 3\)",
        ),
    ],
)
def test_what_does_not_fit_is_named_with_its_shape_and_what_was_expected(call, message):
    with pytest.raises(ValueError, match=message):
        call(torch.randn(N, T, D), torch.randn(N, S, D), torch.randn(N, S, D))
