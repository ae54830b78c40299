"""The statements of the source texts on attention that the tests of chapters do not show."""

import math

import pytest
import torch
from helpers import make_model
from torch import randn
from torch.nn.functional import scaled_dot_product_attention

from model.attention import attend
from model.scoring import Gaussian
from textbook.chapter4_heads import heads_by_loop, heads_in_batch
from textbook.chapter5_layer import MultiHeadAttention, one_head_at_a_time
from textbook.chapter9_scores import epanechnikov_kernel, fit_w, gaussian_kernel, pooling, true_function

N, T, H, D, V = 3, 5, 2, 6, 11

pytestmark = pytest.mark.usefixtures("float64")


# 1. Sequence modelling and multi-head attention


def test_text_1_a_width_that_heads_do_not_divide_is_an_error():
    with pytest.raises(ValueError, match="width=16 cannot be split into n_head=3"):
        MultiHeadAttention(16, 3)


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


# 3. Queries, keys, values and attention pooling


@pytest.mark.parametrize("w", [1.0, 2.5])
def test_text_3_gaussian_pooling_is_nadaraya_watson_regression(w):
    x, xi, y = torch.linspace(0, 5, 9), torch.rand(20) * 5, randn(20)
    expected = [sum(y * torch.exp(-(((a - xi) * w) ** 2) / 2)) / sum(torch.exp(-(((a - xi) * w) ** 2) / 2)) for a in x]
    actual = attend(x[:, None], xi[:, None], y[:, None], score=Gaussian(w))
    torch.testing.assert_close(actual.squeeze(1), torch.stack(expected))
    torch.testing.assert_close(pooling(x, xi, y, gaussian_kernel, w=w)["prediction"], torch.stack(expected))


def test_text_3_the_gaussian_kernel_is_exact_far_from_zero():
    years, y = torch.arange(2000, 2020.1, 0.25), randn(81)
    expected = torch.softmax(-((years[:, None] - years) ** 2) / 2, dim=1) @ y
    actual = pooling(years.float(), years.float(), y.float(), gaussian_kernel)["prediction"]
    torch.testing.assert_close(actual, expected.float(), atol=1e-6, rtol=1e-6)


def test_text_3_any_kernel_can_be_chosen():
    x, xs, ys = torch.tensor([1.0, 9.0]), torch.tensor([0.5, 1.0, 1.8, 3.0]), torch.tensor([1.0, 2, 4, 8])
    density = torch.tensor([0.75, 1.0, 0.36])  # 1 - u^2; the last example lies beyond one width
    expected = (density * ys[:3]).sum() / density.sum()
    actual, other = (pooling(x, xs, ys, kernel)["prediction"] for kernel in (epanechnikov_kernel, gaussian_kernel))
    torch.testing.assert_close(actual, torch.stack((expected, torch.tensor(0.0))))  # nothing is near 9
    assert not torch.allclose(other[0], actual[0])


def test_text_3_an_example_at_the_edge_of_a_kernel_has_no_weight_and_no_gradient():
    w = torch.ones((), requires_grad=True)
    pooled = pooling(torch.tensor([0.0]), torch.tensor([0.25, 1.0]), torch.tensor([3.0, 5.0]), epanechnikov_kernel, w=w)
    y = pooled["prediction"]
    y.sum().backward()
    assert (y.item(), w.grad.item()) == (3, 0)


def test_text_3_a_learned_width_predicts_left_out_examples_better_than_a_fixed_one():
    torch.manual_seed(1)
    xs = torch.sort(torch.rand(50) * 5).values
    ys = true_function(xs) + 0.3 * randn(50)
    others = ~torch.eye(50, dtype=torch.bool)

    def error(kernel, w=1.0):
        return (pooling(xs, xs, ys, kernel, w=w, visible=others)["prediction"] - ys).square().mean().item()

    learned = error(gaussian_kernel, fit_w(xs, ys))
    best = min(error(gaussian_kernel, w) for w in torch.linspace(0.2, 8, 100).tolist())
    assert learned < error(gaussian_kernel) < error(torch.zeros_like)  # the plain average
    assert error(epanechnikov_kernel) < error(torch.zeros_like)
    assert learned == pytest.approx(best, rel=0.01)


# 5. Predicting the next character


def test_text_5_only_attention_moves_information_between_positions():
    model, ids = make_model(V).double(), torch.randint(V, (1, T))
    changed = (ids + 1) % V
    changed[0, 3] = ids[0, 3]  # every character but this one
    assert not torch.allclose(model(ids)[0, 3], model(changed)[0, 3])
    with torch.no_grad():
        for block in model.blocks:
            block.attention.proj.weight.zero_()
    assert torch.equal(model(ids)[0, 3], model(changed)[0, 3])
    assert not torch.allclose(model(ids)[0, 2], model(changed)[0, 2])
