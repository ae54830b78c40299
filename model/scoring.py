"""How well a query and a key match: the scores that attention turns into weights.

Each takes queries (..., T, D) and keys (..., S, D) and gives scores (..., T, S).
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from model.config import ModelConfig

Score = Callable[[Tensor, Tensor], Tensor]

# Elements of the additive score's T x S x hidden intermediate that are in memory at one time.
ADDITIVE_ELEMENTS = 1 << 22


def uniform(q: Tensor, k: Tensor) -> Tensor:
    """0 for every pair: attention becomes the plain average of what is visible. The widths of q and k are free."""
    return q.new_zeros(()).expand(*q.shape[:-1], k.size(-2))


def dot(q: Tensor, k: Tensor) -> Tensor:
    """q . k (Luong et al., 2015)."""
    _check_widths(q, k)
    return q @ k.transpose(-2, -1)


def scaled_dot(q: Tensor, k: Tensor) -> Tensor:
    """q . k / sqrt(D) ("Attention Is All You Need", 2017, eq. 1): of variance 1 where q's and k's channels are.

    The queries are scaled and not the scores, of which there are more.
    """
    _check_widths(q, k)
    return (q * q.size(-1) ** -0.5) @ k.transpose(-2, -1)


class Additive(nn.Module):
    """w . tanh(W_q q + W_k k) (Bahdanau et al., 2015): queries (..., T, query_size), keys (..., S, key_size).

    The sum of every query with every key, hidden channels wide, is never held for all queries at once: it is made for a
    few of them at a time and, in training, made again for the backward pass.
    """

    def __init__(self, query_size: int, key_size: int, hidden: int):
        super().__init__()
        self.query = nn.Linear(query_size, hidden, bias=False)
        self.key = nn.Linear(key_size, hidden, bias=False)
        self.weight = nn.Linear(hidden, 1, bias=False)

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        q, k = self.query(q), self.key(k)  # (..., T, hidden), (..., S, hidden)
        queries_at_once = max(1, ADDITIVE_ELEMENTS // k.numel())
        pieces = q.split(queries_at_once, dim=-2)
        if torch.is_grad_enabled():
            scores = [
                checkpoint(self._score, piece, k, use_reentrant=False, preserve_rng_state=False) for piece in pieces
            ]
        else:
            scores = [self._score(piece, k) for piece in pieces]
        return torch.cat(scores, dim=-2)

    def _score(self, q: Tensor, k: Tensor) -> Tensor:
        sums = q.unsqueeze(-2) + k.unsqueeze(-3)  # (..., T, S, hidden)
        return self.weight(torch.tanh(sums)).squeeze(-1)


class Gaussian(nn.Module):
    """-|(q - k) w|^2 / 2, the exponent of the Gaussian kernel (Nadaraya, 1964; Watson, 1964), 1/w being its width.

    w is learned, beginning from the given value, or fixed at it.
    """

    def __init__(self, w: float = 1.0, *, learned: bool = True):
        super().__init__()
        if learned:
            self.w = nn.Parameter(torch.tensor(w))
        else:
            self.register_buffer("w", torch.tensor(w))

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        _check_widths(q, k)
        # |q - k|^2 = |q|^2 - 2 q.k + |k|^2 needs no T x S x D intermediate.
        q, k = q * self.w, k * self.w
        q_squares, k_squares = q.square().sum(-1), k.square().sum(-1)
        return q @ k.transpose(-2, -1) - (q_squares.unsqueeze(-1) + k_squares.unsqueeze(-2)) / 2


def make_score(config: ModelConfig) -> Score:
    """The scoring function of `model.score` for a layer's heads; additive and gaussian bring parameters along."""
    D = config.size_per_head
    if config.score == "additive":
        return Additive(D, D, config.score_hidden)
    if config.score == "gaussian":
        learned = config.score_width is None
        # Like scaled_dot at the start: w^2 q.k = q.k / sqrt(D).
        return Gaussian(D**-0.25 if learned else 1 / config.score_width, learned=learned)
    return {"uniform": uniform, "dot": dot, "scaled_dot": scaled_dot}[config.score]


def _check_widths(q: Tensor, k: Tensor) -> None:
    if q.size(-1) != k.size(-1):
        raise ValueError(f"q has shape {tuple(q.shape)}; expected a width of {k.size(-1)}, that of k")
