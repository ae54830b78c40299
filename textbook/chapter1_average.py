"""Chapter 1: how can a position use the positions before it? In the simplest way, it takes their plain average.

A text is a sequence of tokens: characters in this project, words in some examples. Each has a position and a vector of
numbers, its channels. A model that predicts the next token reads from left to right: a position may use itself and the
positions before it, never those after it. This chapter computes the average of the past in three equal ways.

In y = weights x, row t of y is the sum of the rows of x, each times its weight in row t. Only the last way can become
attention, because its weights can come from the data. It uses a softmax, which turns each row z of scores into weights:

    softmax(z)_i = exp(z_i) / sum_j exp(z_j)

The weights add up to 1. The largest score gets the largest weight, and equal scores get equal weights. Here, the scores
of the future are -inf, and exp(-inf) = 0. All other scores are 0. Why not divide each score by the sum of its row?
Scores may be negative, and their sum zero. The softmax makes each weight positive, and never divides by zero.

Next: python -m textbook 2 takes the scores from the data.
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


def average_by_matrix(x: Tensor, visible: Tensor) -> dict[str, Tensor]:
    """Return y (B, T, C), the mean of what each row of visible (T, T) marks by 1 in x (B, T, C), and its weights."""
    weights = visible / visible.sum(dim=1, keepdim=True)  # each row adds up to 1
    return {"weights": weights, "y": weights @ x}  # (T, T) @ (B, T, C) -> (B, T, C)


def average_by_softmax(x: Tensor, visible: Tensor) -> dict[str, Tensor]:
    """Return the same as `average_by_matrix` by a softmax, with the scores (T, T)."""
    scores = torch.zeros_like(visible)  # no position matters more than another
    scores = scores.masked_fill(visible == 0, float("-inf"))
    weights = F.softmax(scores, dim=-1)
    return {"scores": scores, "weights": weights, "y": weights @ x}


def show() -> Iterator[str | tuple[str, Tensor]]:
    x = torch.tensor([[[4.0, 0.0], [2.0, 6.0], [0.0, 3.0]], [[1.0, 1.0], [1.0, 1.0], [7.0, 1.0]]])  # (2, 3, 2)
    yield "x, the first of two sequences: three positions of two channels", x[0]
    everything = average_by_matrix(x, torch.ones(3, 3))
    yield "weights of a plain average: each row is ones, divided by their sum", everything["weights"]
    yield "y = weights x: each position is the average of all, even the future", everything["y"][0]
    tril = torch.tril(torch.ones(3, 3))
    yield "tril, a lower triangle: row t has a 1 for each position that t may use", tril
    by_matrix, by_softmax = average_by_matrix(x, tril), average_by_softmax(x, tril)
    yield "weights: the triangle with each row divided by its sum", by_matrix["weights"]
    yield "scores: zeros, and -inf for the future", by_softmax["scores"]
    yield "weights = softmax(scores), row by row", by_softmax["weights"]
    y = average_by_loop(x)
    yield "y = weights x: the averages of the first sequence", y[0]
    yield "x, the second sequence", x[1]
    yield "y: its averages, which never see the first sequence", y[1]
    equal = all(torch.allclose(y, form["y"]) for form in (by_matrix, by_softmax))
    yield f"Loop, matrix and softmax give {'the same' if equal else 'DIFFERENT results'}."
