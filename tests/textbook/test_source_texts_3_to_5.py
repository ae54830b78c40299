"""The statements of the source texts on attention, texts 3 to 5."""

import pytest
import torch
from helpers import make_model
from torch import randn

from model.attention import attend
from model.scoring import Gaussian, dot, uniform
from textbook.chapter1_average import average_by_loop, average_by_matrix, average_by_softmax
from textbook.chapter2_similarity import attend_by_loop, attend_by_matrix
from textbook.chapter5_layer import MultiHeadAttention
from textbook.chapter7_gpt import TextbookGPT
from textbook.chapter9_scores import (
    epanechnikov_kernel,
    fit_w,
    gaussian_kernel,
    pooling,
    true_function,
)

N, T, S, H, D, V = 3, 5, 7, 2, 6, 11

pytestmark = pytest.mark.usefixtures("float64")


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


@pytest.mark.parametrize("log_kernel", [gaussian_kernel, epanechnikov_kernel])
def test_text_3_the_width_of_a_pooling_kernel_is_learned(log_kernel):
    x, xs, ys = torch.linspace(0, 5, 9), torch.rand(20) * 5, randn(20)
    w = torch.tensor(0.7, requires_grad=True)
    assert torch.autograd.gradcheck(lambda w: pooling(x, xs, ys, log_kernel, w=w)["prediction"], w)


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


# 4. Self-attention from first principles


def test_text_4_the_loop_and_the_matrix_form_of_self_attention_without_parameters_are_equal():
    x = randn(N, T, D) / 2
    weights = torch.exp(torch.einsum("bic,bjc->bij", x, x))
    expected = torch.einsum("bij,bjc->bic", weights / weights.sum(2, keepdim=True), x)
    torch.testing.assert_close(attend_by_matrix(x)["y"], expected)
    torch.testing.assert_close(attend(x, x, x, score=dot), expected)
    torch.testing.assert_close(torch.stack([attend_by_loop(sequence) for sequence in x]), expected)


def test_text_4_permuting_the_sequence_permutes_the_output_and_changes_nothing_else():
    layer, x, order = MultiHeadAttention(8, H), randn(N, T, 8), torch.randperm(T)
    for attention in (layer, lambda x: attend_by_matrix(x)["y"]):
        torch.testing.assert_close(attention(x[:, order]), attention(x)[:, order])


# 5. Predicting the next character


def test_text_5_the_average_of_the_past_by_loop_triangle_and_masked_softmax_of_zeros_is_the_uniform_score():
    x = randn(N, T, D)
    expected = torch.stack([x[:, : t + 1].sum(1) / (t + 1) for t in range(T)], dim=1)
    tril = torch.ones(T, T).tril()
    for y in (average_by_loop(x), average_by_matrix(x, tril)["y"], average_by_softmax(x, tril)["y"]):
        torch.testing.assert_close(y, expected)
    torch.testing.assert_close(attend(x, x, x, score=uniform, causal=True), expected)


def gpts():
    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 12, "block_size": 16}
    for model in (make_model(V, **sizes), TextbookGPT(V, **sizes)):
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(torch.randn_like(p) * 0.3)
        yield model


@pytest.mark.parametrize("model", list(gpts()), ids=["GPT", "TextbookGPT"])
def test_text_5_only_attention_moves_information_between_positions(model):
    model.double()
    ids = torch.randint(V, (1, T))
    changed = (ids + 1) % V
    changed[0, 3] = ids[0, 3]  # every character but this one
    assert not torch.allclose(model(ids)[0, 3], model(changed)[0, 3])
    with torch.no_grad():
        for block in model.blocks:
            block.attention.proj.weight.zero_()
    assert torch.equal(model(ids)[0, 3], model(changed)[0, 3])
    assert not torch.allclose(model(ids)[0, 2], model(changed)[0, 2])
