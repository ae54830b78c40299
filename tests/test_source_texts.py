"""The five texts on attention that this project stands on, statement by statement, to their printed digits."""

import math

import pytest
import torch
from torch import nn

from experiments.patches import PATCHES
from experiments.trace import EXAMPLE, example_layer
from model.attention import Head, MultiHeadAttention, attend, causal_mask, join_heads, masked_softmax, split_heads
from model.scoring import Additive, Gaussian, dot, scaled_dot, uniform
from model.trace import trace_attention

N, T, S, H, D = 3, 5, 7, 2, 6

pytestmark = pytest.mark.usefixtures("float64")


def randn(*shape):
    return torch.randn(*shape)


def digits(rows):
    """Rows of numbers as they are printed in a text."""
    return torch.tensor(rows)


# 1. Sequence modelling and multi-head attention


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


def test_text_1_self_attention_is_cross_attention_to_oneself():
    layer, x, memory = MultiHeadAttention(8, H), randn(N, T, 8), randn(N, S, 8)
    torch.testing.assert_close(layer(x), layer(x, x, x))
    assert layer(x, memory).shape == (N, T, 8)  # keys and values have a length of their own


def test_text_1_zero_means_hidden_and_the_three_masks_combine():
    layer, x, memory = MultiHeadAttention(8, H), randn(N, T, 8), randn(N, S, 8)
    padding, attention, between = (torch.rand(shape) < 0.7 for shape in ((N, S), (T, S), (T, S)))
    padding[:, 0] = attention[:, 0] = between[:, 0] = True  # something is left to see
    traced = trace_attention(
        layer, x, memory, padding_mask=padding.long(), attention_mask=attention.double(), memory_mask=between
    )
    visible = padding[:, None, None, :] & attention & between
    scores = traced["scores"].masked_fill(~visible, -math.inf)
    torch.testing.assert_close(traced["weights"], scores.softmax(-1))
    assert (traced["weights"][(~visible).expand(N, H, T, S)] == 0).all()


def test_text_1_the_einsum_form_equals_the_matmul_form():
    q, k, v = randn(N, T, H, D), randn(N, S, H, D), randn(N, S, H, D)
    weights = torch.softmax(torch.einsum("nqhd,nkhd->nhqk", q, k) / math.sqrt(D), dim=-1)
    expected = torch.einsum("nhqk,nkhd->nqhd", weights, v)
    actual = attend(*(x.transpose(1, 2) for x in (q, k, v))).transpose(1, 2)
    torch.testing.assert_close(actual, expected)


# 2. Multi-head attention from tensors


def test_text_2_the_input_may_be_of_another_width_and_is_mapped_without_bias():
    layer = MultiHeadAttention(16, 2, query_size=10, key_size=11, value_size=12)
    assert [tuple(p.shape) for p in layer.parameters()] == [(16, 10), (16, 11), (16, 12), (16, 16)]
    assert layer(randn(N, T, 10), randn(N, S, 11), randn(N, S, 12)).shape == (N, T, 16)


def test_text_2_every_shape_of_the_printout():
    layer = MultiHeadAttention(16, 2, query_size=10, key_size=10, value_size=10, output_map=False)
    shapes = {name: tuple(value.shape) for name, value in trace_attention(layer, randn(32, 20, 10)).items()}
    assert shapes == {
        "queries": (32, 20, 10),
        "q": (32, 2, 20, 8),
        "k": (32, 2, 20, 8),
        "v": (32, 2, 20, 8),
        "scores": (32, 2, 20, 20),
        "weights": (32, 2, 20, 20),
        "heads": (32, 2, 20, 8),
        "result": (32, 20, 16),
    }


def test_text_2_the_worked_example_to_its_printed_digits():
    traced = trace_attention(example_layer(), EXAMPLE)
    values = {name: value.squeeze() for name, value in traced.items()}
    assert torch.equal(values["q"], digits([[1.0, 0, 2], [2, 2, 2], [2, 1, 3]]))
    assert torch.equal(values["k"], digits([[0.0, 1, 1], [4, 4, 0], [2, 3, 1]]))
    assert torch.equal(values["v"], digits([[1.0, 2, 3], [2, 8, 0], [2, 6, 3]]))
    scores = [[1.1547, 2.3094, 2.3094], [2.3094, 9.2376, 6.9282], [2.3094, 6.9282, 5.7735]]
    weights = [
        [1.3613e-01, 4.3194e-01, 4.3194e-01],
        [8.9045e-04, 9.0884e-01, 9.0267e-02],
        [7.4449e-03, 7.5471e-01, 2.3785e-01],
    ]
    result = [[1.8639, 6.3194, 1.7042], [1.9991, 7.8141, 0.2735], [1.9926, 7.4796, 0.7359]]
    torch.testing.assert_close(values["scores"], digits(scores), atol=5e-5, rtol=0)
    torch.testing.assert_close(values["weights"], digits(weights), atol=0, rtol=5e-5)
    torch.testing.assert_close(values["result"], digits(result), atol=5e-5, rtol=0)


def test_text_2_queries_keys_and_values_may_be_given_directly():
    traced = {name: value.squeeze() for name, value in trace_attention(example_layer(), EXAMPLE).items()}
    torch.testing.assert_close(attend(traced["q"], traced["k"], traced["v"]), traced["result"])


def test_text_2_the_four_patches_of_the_picture_have_the_weights_of_arithmetic():
    x = torch.tensor(PATCHES, dtype=torch.float64)
    weights = masked_softmax(scaled_dot(x, x))
    odd, even = [0.25] * 4, [0.1888, 0.3112, 0.1888, 0.3112]
    torch.testing.assert_close(weights, digits([odd, even, odd, even]), atol=5e-5, rtol=0)
    torch.testing.assert_close(weights[1, 1] / weights[1, 0], torch.tensor(0.5).exp())


# 3. Queries, keys, values and attention pooling


def test_text_3_attention_is_a_weighted_sum_whose_weights_come_from_compatibility():
    q, keys = torch.tensor([[1.0, 0.0]]), torch.tensor([[100.0, 0.0], [-100.0, 0.0]])
    values = torch.tensor([[3.0], [5.0]])
    torch.testing.assert_close(attend(q, keys, values), torch.tensor([[3.0]]))
    torch.testing.assert_close(attend(q, keys, values, score=uniform), torch.tensor([[4.0]]))


@pytest.mark.parametrize("w", [1.0, 2.5])
def test_text_3_gaussian_pooling_is_nadaraya_watson_regression(w):
    x, xi, y = torch.linspace(0, 5, 9), torch.rand(20) * 5, randn(20)
    expected = [sum(y * torch.exp(-(((a - xi) * w) ** 2) / 2)) / sum(torch.exp(-(((a - xi) * w) ** 2) / 2)) for a in x]
    actual = attend(x[:, None], xi[:, None], y[:, None], score=Gaussian(w))
    torch.testing.assert_close(actual.squeeze(1), torch.stack(expected))


def test_text_3_the_width_of_the_kernel_is_learned_or_fixed():
    assert [p.shape for p in Gaussian(2.0).parameters()] == [()]
    assert list(Gaussian(2.0, learned=False).parameters()) == []
    score = Gaussian(1.0)
    score(randn(T, D), randn(S, D)).sum().backward()
    assert score.w.grad != 0


def test_text_3_additive_scores_take_queries_and_keys_of_different_widths():
    score, q, k = Additive(4, 3, hidden=8), randn(N, T, 4), randn(N, S, 3)
    for n in range(N):
        for t in range(T):
            for s in range(S):
                hidden = torch.tanh(score.query.weight @ q[n, t] + score.key.weight @ k[n, s])
                torch.testing.assert_close(score(q, k)[n, t, s], score.weight.weight[0] @ hidden)


def test_text_3_scaled_products_need_equal_widths_and_leave_that_of_the_values_free():
    assert attend(randn(4, 3), randn(6, 3), randn(6, 2)).shape == (4, 2)


# 4. Self-attention from first principles


def test_text_4_the_simplest_self_attention_has_no_parameters():
    x = randn(T, D)
    weights = torch.exp(x @ x.T)
    weights = weights / weights.sum(1, keepdim=True)
    expected = torch.stack([sum(weights[i, j] * x[j] for j in range(T)) for i in range(T)])
    torch.testing.assert_close(attend(x, x, x, score=dot), expected)


def test_text_4_permuting_the_sequence_permutes_the_output_and_changes_nothing_else():
    layer, x, order = MultiHeadAttention(8, H), randn(N, T, 8), torch.randperm(T)
    torch.testing.assert_close(layer(x[:, order]), layer(x)[:, order])


def test_text_4_wide_heads_have_the_full_width_each_and_are_unified_by_one_map():
    layer = MultiHeadAttention(8, 3, head_size=8)
    assert layer.query.weight.shape == (24, 8)
    assert layer.proj.weight.shape == (8, 24)
    assert layer(randn(N, T, 8)).shape == (N, T, 8)


def test_text_4_scaling_both_by_the_fourth_root_equals_dividing_the_scores_by_the_root():
    q, k = randn(N, T, D), randn(N, S, D)
    torch.testing.assert_close(dot(q / D**0.25, k / D**0.25), dot(q, k) / math.sqrt(D))
    torch.testing.assert_close(scaled_dot(q, k), dot(q, k) / math.sqrt(D))


# 5. Predicting the next character


def test_text_5_the_average_of_the_past_by_a_normalised_triangle_equals_the_masked_softmax_of_zeros():
    x, triangle = randn(N, T, D), torch.tril(torch.ones(T, T))
    averaged = triangle / triangle.sum(1, keepdim=True) @ x
    weights = torch.softmax(torch.zeros(T, T).masked_fill(triangle == 0, float("-inf")), dim=-1)
    torch.testing.assert_close(weights @ x, averaged)
    torch.testing.assert_close(attend(x, x, x, score=uniform, causal=True), averaged)


def test_text_5_a_head_weighs_its_past_by_scaled_products_of_its_maps():
    head, x = Head(8, D, block_size=10), randn(N, T, 8)
    q, k, v = (x @ linear.weight.T for linear in (head.query, head.key, head.value))
    scores = (q @ k.mT * D**-0.5).masked_fill(torch.tril(torch.ones(T, T)) == 0, -math.inf)
    torch.testing.assert_close(head(x), scores.softmax(-1) @ v)
    torch.testing.assert_close(head(x), attend(q, k, v, causal=True))
    assert all(linear.bias is None for linear in (head.query, head.key, head.value))


def test_text_5_softmax_sharpens_towards_one_hot_as_scores_grow():
    scores = torch.tensor([0.1, -0.2, 0.3, -0.2, 0.5])
    peaks = [masked_softmax(scores * factor).max().item() for factor in (1, 8, 100)]
    assert peaks == sorted(peaks)
    assert peaks[0] < 0.3
    assert peaks[2] > 0.999


def test_text_5_without_the_mask_every_position_sees_every_position():
    layer, x = MultiHeadAttention(8, H), randn(1, T, 8)
    assert (trace_attention(layer, x)["weights"] > 0).all()
    past = trace_attention(layer, x, causal=True)["weights"] > 0
    assert torch.equal(past, causal_mask(T, T).expand(1, H, T, T))


def test_text_5_sequences_of_a_batch_never_see_each_other():
    layer, x = MultiHeadAttention(8, H), randn(N, T, 8)
    torch.testing.assert_close(layer(x)[1], layer(x[1:2])[0])


def test_text_5_in_cross_attention_keys_and_values_come_from_elsewhere():
    layer, x, memory = MultiHeadAttention(8, H), randn(N, T, 8), randn(N, S, 8)
    q, k, v = layer.query(x), layer.key(memory), layer.value(memory)
    expected = layer.proj(join_heads(attend(*(split_heads(y, H) for y in (q, k, v)))))
    torch.testing.assert_close(layer(x, memory), expected)
