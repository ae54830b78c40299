"""Scoring functions: how well a query and a key match. Attention turns scores into weights.

Each takes queries (..., T, D) and keys (..., S, D) and returns scores (..., T, S).
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

Score = Callable[[Tensor, Tensor], Tensor]

ADDITIVE_HIDDEN = 16  # hidden width of the additive score


def uniform(q: Tensor, k: Tensor) -> Tensor:
    """Return 0 for every pair, so that attention averages the visible values. q and k may have different widths."""
    return q.new_zeros(()).expand(*q.shape[:-1], k.size(-2))


def dot(q: Tensor, k: Tensor) -> Tensor:
    """Return q . k (Luong et al., 2015)."""
    return q @ k.transpose(-2, -1)


def scaled_dot(q: Tensor, k: Tensor) -> Tensor:
    """Return q . k / sqrt(D) ("Attention Is All You Need", 2017, eq. 1).

    If the channels of q and k are independent, with mean 0 and variance 1, the scores have variance 1. Scaling q costs
    less than scaling the scores.
    """
    return (q * q.size(-1) ** -0.5) @ k.transpose(-2, -1)


class Additive(nn.Module):
    """tanh(q Wq + k Wk) Ws (Bahdanau et al., 2015) of queries (..., T, query_size) and keys (..., S, key_size).

    The sums of all queries and keys take `hidden` times the memory of the scores.
    """

    def __init__(self, query_size: int, key_size: int, hidden: int):
        super().__init__()
        self.query = nn.Linear(query_size, hidden, bias=False)
        self.key = nn.Linear(key_size, hidden, bias=False)
        self.weight = nn.Linear(hidden, 1, bias=False)

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        sums = self.query(q).unsqueeze(-2) + self.key(k).unsqueeze(-3)  # (..., T, S, hidden)
        return self.weight(torch.tanh(sums)).squeeze(-1)


class Gaussian(nn.Module):
    """-|(q - k) w|^2 / 2, the exponent of a Gaussian kernel of width 1/w (Nadaraya, 1964; Watson, 1964).

    w is learned, from the given value on. Exact for vectors near zero, such as the model's queries and keys;
    `textbook/chapter9_scores.py` is exact everywhere.
    """

    def __init__(self, w: float = 1.0):
        super().__init__()
        self.w = nn.Parameter(torch.tensor(w))

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        # |q - k|^2 = |q|^2 - 2 q.k + |k|^2 needs no T x S x D intermediate. Far from zero it loses digits: its error is
        # at most about (D + 4) eps (|q|^2 + |k|^2) w^2, small for normalised q and k, whose |q|^2 is D.
        q, k = q * self.w, k * self.w
        q_squares, k_squares = q.square().sum(-1), k.square().sum(-1)
        return q @ k.transpose(-2, -1) - (q_squares.unsqueeze(-1) + k_squares.unsqueeze(-2)) / 2


def make_score(name: str, head_size: int) -> Score:
    """Return the scoring function of `model.score` for heads of head_size channels.

    The Gaussian kernel starts like scaled_dot: w^2 q . k = q . k / sqrt(D).
    """
    if name == "additive":
        return Additive(head_size, head_size, ADDITIVE_HIDDEN)
    if name == "gaussian":
        return Gaussian(head_size**-0.25)
    return {"uniform": uniform, "dot": dot, "scaled_dot": scaled_dot}[name]
