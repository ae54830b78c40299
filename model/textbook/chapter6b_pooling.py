"""Chapter 6, continued: what did attention look like before networks? An average of examples, weighted by nearness.

To predict y at x from examples (x_i, y_i), x is the query, the x_i are the keys and the y_i the values. A kernel gives
each example a weight by its distance; its logarithm is the score (Nadaraya, 1964; Watson, 1964).

Next: `chapter7a_bigram.py` is a language model without attention.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from model.attention import masked_softmax

LogKernel = Callable[[Tensor], Tensor]


def gaussian_kernel(u: Tensor) -> Tensor:
    """Return log K(u) = -u^2 / 2, up to a constant: every example counts, near ones most."""
    return -u.square() / 2


def epanechnikov_kernel(u: Tensor) -> Tensor:
    """Return log K(u) of K(u) = max(1 - u^2, 0), up to a constant: only examples within one width count."""
    outside = u.abs() >= 1
    return torch.log1p(-u.masked_fill(outside, 0.0).square()).masked_fill(outside, -math.inf)


class Kernel(nn.Module):
    """A kernel of width 1 / w: log K(w (x - x_i)), with w learned or fixed."""

    def __init__(self, log_kernel: LogKernel = gaussian_kernel, w: float = 1.0, *, learned: bool = False):
        super().__init__()
        self.log_kernel = log_kernel
        self.w = nn.Parameter(torch.tensor(w), requires_grad=learned)

    def forward(self, difference: Tensor) -> Tensor:
        return self.log_kernel(difference * self.w)


def pooling_weights(x: Tensor, xs: Tensor, kernel: LogKernel, *, visible: Tensor | None = None) -> Tensor:
    """Return the weight (T, S) of each example xs (S,) in the prediction at each x (T,).

    Each row is the softmax of log K(x - x_i) over the examples. The kernel takes the differences, because expanding
    (x - x_i)^2 would lose digits far from zero. visible (T, S) is False for hidden examples. A row is zero if the
    kernel reaches no visible example.
    """
    scores = kernel(x[:, None] - xs[None, :])  # (T, S)
    within_reach = scores > -math.inf
    return masked_softmax(scores, visible=within_reach if visible is None else within_reach & visible)


def pool(x: Tensor, xs: Tensor, ys: Tensor, kernel: LogKernel, *, visible: Tensor | None = None) -> Tensor:
    """Return the prediction (T,) at x (T,) from examples xs (S,) and ys (S,). See `pooling_weights`."""
    return pooling_weights(x, xs, kernel, visible=visible) @ ys
