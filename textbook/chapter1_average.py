"""Chapter 1: how can a position use the positions before it? In the simplest way, it takes their plain average.

A model that predicts the next character reads from left to right: a position may use itself and what came before, never
what comes later. This chapter computes the average of the past in three ways that are equal. Only the last of them,
a softmax of scores with the future hidden, can be changed into attention: so far, all its scores are 0.

Next: chapter 2 takes the scores from the data.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor


def average_by_loop(x: Tensor) -> Tensor:
    """Return the mean of positions 0 to t at each position t: (B, T, C) -> (B, T, C)."""
    B, T, _ = x.shape
    y = torch.empty_like(x)
    for b in range(B):  # sequences of a batch never see each other
        for t in range(T):
            y[b, t] = x[b, : t + 1].mean(dim=0)
    return y


def average_by_matrix(x: Tensor) -> Tensor:
    """Return the same as `average_by_loop`, as a product with a lower-triangular matrix."""
    T = x.size(1)
    weights = torch.tril(torch.ones(T, T, dtype=x.dtype))  # row t has a 1 for each position up to t
    weights = weights / weights.sum(dim=1, keepdim=True)  # each row adds up to 1
    return weights @ x  # (T, T) @ (B, T, C) -> (B, T, C)


def average_by_softmax(x: Tensor) -> Tensor:
    """Return the same as `average_by_loop`, with weights from a softmax: softmax(s)_j = exp(s_j) / sum_i exp(s_i)."""
    T = x.size(1)
    scores = torch.zeros(T, T, dtype=x.dtype)  # no position matters more than another
    future = torch.tril(torch.ones(T, T)) == 0
    scores = scores.masked_fill(future, float("-inf"))  # exp(-inf) = 0: no weight on the future
    return F.softmax(scores, dim=-1) @ x


def show() -> Iterator[str | tuple[str, Tensor]]:
    x = torch.tensor([[[4.0, 0.0], [2.0, 6.0], [0.0, 3.0]], [[1.0, 1.0], [1.0, 1.0], [7.0, 1.0]]])  # (2, 3, 2)
    yield "x, the first of two sequences: three positions of two channels", x[0]
    triangle = torch.tril(torch.ones(3, 3))
    yield "triangle: row t has a 1 for each position that t may use", triangle
    yield "weights: the triangle with each row divided by its sum", triangle / triangle.sum(dim=1, keepdim=True)
    scores = torch.zeros(3, 3).masked_fill(triangle == 0, float("-inf"))
    yield "scores: zeros, and -inf for the future", scores
    yield "weights = softmax(scores), row by row", F.softmax(scores, dim=-1)
    y = average_by_loop(x)
    yield "y: the averages of the first sequence", y[0]
    yield "y: the averages of the second one, which never sees the first", y[1]
    equal = all(torch.allclose(y, other) for other in (average_by_matrix(x), average_by_softmax(x)))
    yield f"Loop, matrix and softmax give {'the same' if equal else 'DIFFERENT results'}."
