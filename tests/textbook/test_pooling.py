"""Attention pooling in its corner cases; test_printed_numbers.py has its predictions."""

import pytest
import torch

from textbook.chapter7_scores import epanechnikov_kernel, fit_width, gaussian_kernel, pooling, true_function

pytestmark = pytest.mark.usefixtures("float64")


def test_examples_at_the_edge_of_a_kernel_or_beyond_have_no_weight_and_no_gradient():
    w, x, xs = torch.ones((), requires_grad=True), torch.tensor([1.0, 9.0]), torch.tensor([0.5, 1.0, 2.0, 3.0])
    y = pooling(x, xs, torch.tensor([3.0, 3, 5, 7]), epanechnikov_kernel, w=w)["prediction"]
    y.sum().backward()
    torch.testing.assert_close(y.detach(), torch.tensor([3.0, 0.0]))  # nothing is near 9
    assert w.grad == 0


def test_the_gaussian_kernel_is_exact_far_from_zero():
    years, y = torch.arange(2000, 2020.1, 0.25), torch.randn(81)
    expected = torch.softmax(-((years[:, None] - years) ** 2) / 2, dim=1) @ y
    actual = pooling(years.float(), years.float(), y.float(), gaussian_kernel)["prediction"]
    torch.testing.assert_close(actual, expected.float(), atol=1e-6, rtol=1e-6)


def test_a_learned_width_predicts_left_out_examples_best():
    torch.manual_seed(1)
    xs = torch.sort(torch.rand(50) * 5).values
    ys = true_function(xs) + 0.3 * torch.randn(50)
    others = ~torch.eye(50, dtype=torch.bool)

    def error(w):
        return (pooling(xs, xs, ys, gaussian_kernel, w=w, visible=others)["prediction"] - ys).square().mean().item()

    best = min(map(error, torch.linspace(0.2, 8, 100).tolist()))
    assert error(fit_width(xs, ys)) == pytest.approx(best, rel=0.01)
