"""One head of causal self-attention: a lower-triangular mask, softmax, and a weighted sum of values."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Head(nn.Module):
    """One head of causal self-attention (Vaswani et al., 2017, eq. 1): (B, T, C) -> (B, T, D), with D = head_size.

    The mask covers block_size positions.
    """

    tril: Tensor

    def __init__(self, n_embd: int, head_size: int, block_size: int, *, dropout: float = 0.0, bias: bool = False):
        super().__init__()
        self.query = nn.Linear(n_embd, head_size, bias=bias)
        self.key = nn.Linear(n_embd, head_size, bias=bias)
        self.value = nn.Linear(n_embd, head_size, bias=bias)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("tril", torch.tril(torch.ones(block_size, block_size)), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, T, D). Raises ValueError if x is not (B, T, C) or has more than block_size positions."""
        if x.ndim != 3 or x.size(-1) != self.query.in_features:
            raise ValueError(f"x has shape {tuple(x.shape)}; expected (B, T, {self.query.in_features})")
        T = x.size(1)
        if len(self.tril) < T:
            raise ValueError(f"x has {T} positions; the mask has {len(self.tril)}: raise block_size or shorten x")
        q, k, v = self.query(x), self.key(x), self.value(x)  # (B, T, D) each
        scores = q @ k.transpose(-2, -1) * k.size(-1) ** -0.5  # (B, T, T)
        scores = scores.masked_fill(self.tril[:T, :T] == 0, float("-inf"))
        weights = self.dropout(F.softmax(scores, dim=-1))
        return weights @ v  # (B, T, D)
