"""Chapter 2: which positions matter to a position? In the simplest answer from the data, those that resemble it.

The score of two positions is the dot product of their vectors. This is self-attention without parameters:
y = softmax(x x^T) x. It treats its input as a set: it has no idea of order, and nothing to learn.

Next: chapter 3 gives each position three learned vectors, and hides the future.
"""

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor


def attend_by_loop(x: Tensor) -> Tensor:
    """Return y_i = sum_j w_ij x_j of one sequence, with w_ij = exp(x_i . x_j) / sum_k exp(x_i . x_k): (T, C)."""
    y = torch.zeros_like(x)
    for i in range(len(x)):
        likeness = [math.exp(x[i].dot(x[j])) for j in range(len(x))]
        for j in range(len(x)):
            y[i] += likeness[j] / sum(likeness) * x[j]
    return y


def attend_by_matrix(x: Tensor) -> Tensor:
    """Return the same for all sequences at once: softmax(x x^T) x, (B, T, C) -> (B, T, C)."""
    scores = x @ x.transpose(-2, -1)  # (B, T, T)
    return F.softmax(scores, dim=-1) @ x


def show() -> Iterator[str | tuple[str, Tensor]]:
    x = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, 1.0]], dtype=torch.float64)
    yield "x: four positions of two channels", x
    yield "scores = x x^T: long vectors that point the same way score high", x @ x.T
    yield "weights = softmax(scores), row by row", F.softmax(x @ x.T, dim=-1)
    yield "y = weights x", attend_by_matrix(x)
    equal = torch.allclose(attend_by_loop(x), attend_by_matrix(x))
    yield f"Loop and matrix form give {'the same' if equal else 'DIFFERENT results'}."
    order = torch.tensor([2, 0, 3, 1])
    is_set = torch.allclose(attend_by_matrix(x[order]), attend_by_matrix(x)[order])
    yield f"Positions in another order have {'the same' if is_set else 'DIFFERENT'} outputs: x is a set.\n"

    rows = []
    for C in (4, 64, 1024):
        a, b = torch.randn(2, 2000, C, generator=torch.Generator().manual_seed(C), dtype=torch.float64)
        products = (a * b).sum(dim=-1)  # (2000,)
        rows.append([C, torch.full((C,), 3.0).norm(), products.std(), (products / C**0.5).std()])
    yield (
        "Dot products grow with the width C, so chapter 3 divides them by its root.\n"
        "Columns: C; length of (3, ..., 3); standard deviation of random dot products; the same / sqrt(C)",
        torch.tensor(rows, dtype=torch.float64),
    )
