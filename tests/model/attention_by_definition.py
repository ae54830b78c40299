"""An independent implementation of attention, written from the source texts alone, as an oracle for tests."""

import torch
from torch import nn


class EinsumAttention(nn.Module):
    """Multi-head attention whose products are named by their axes: batch, query, key, head, channel."""

    def __init__(self, width, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.to_queries, self.to_keys, self.to_values = (nn.Linear(width, width) for _ in range(3))
        self.unify = nn.Linear(width, width)

    def forward(self, x, memory, mask=None):
        """x (batch, query, width), memory (batch, key, width), mask (batch, query, key) with 0 where hidden."""
        queries, keys, values = (
            linear(y).reshape(*y.shape[:2], self.n_heads, -1)
            for linear, y in ((self.to_queries, x), (self.to_keys, memory), (self.to_values, memory))
        )
        energy = torch.einsum("bqhc,bkhc->bhqk", queries, keys)
        if mask is not None:
            energy = energy.masked_fill(mask[:, None] == 0, float("-inf"))
        weights = torch.softmax(energy / queries.shape[-1] ** 0.5, dim=3)
        pooled = torch.einsum("bhqk,bkhc->bqhc", weights, values)
        return self.unify(pooled.flatten(2))


class CausalHead(nn.Module):
    """One head that predicts from the past: average over a triangle, by affinities of queries and keys."""

    def __init__(self, channels, head_size):
        super().__init__()
        self.key = nn.Linear(channels, head_size, bias=False)
        self.query = nn.Linear(channels, head_size, bias=False)
        self.value = nn.Linear(channels, head_size, bias=False)

    def forward(self, x):
        length = x.shape[1]
        affinity = torch.einsum("btc,bsc->bts", self.query(x), self.key(x)) / self.key.out_features**0.5
        likeness = torch.exp(affinity) * torch.ones(length, length).tril()  # zero weight on the future
        return (likeness / likeness.sum(2, keepdim=True)) @ self.value(x)
