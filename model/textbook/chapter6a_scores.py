"""Chapter 6: how well does a key match a query? A scoring function, also called compatibility function, says so.

    uniform      0                              the plain average of chapter 1
    dot          q . k                          chapter 2
    scaled dot   q . k / sqrt(D)                chapter 3
    additive     v . tanh(Wq q + Wk k)          q and k may have different widths
    gaussian     -|(q - k) w|^2 / 2             near is similar, whatever the length

Additive attention (Bahdanau et al., 2015) is a small network (MLP) that reads the query and the key side by side: a
layer of the matrix [Wq Wk], a tanh, and a layer with one output. `model/scoring.py` defines all five.

Next: `chapter6b_pooling.py` predicts numbers with them.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from model.scoring import Additive, Gaussian, dot, scaled_dot, uniform
from model.textbook.chapter5b_layer import MultiHeadAttention


def as_mlp(score: Additive) -> nn.Sequential:
    """Return the MLP that computes an additive score from (..., query_size + key_size) -> (..., 1)."""
    joined = torch.cat((score.query.weight, score.key.weight), dim=1)  # (hidden, query_size + key_size)
    first, last = nn.Linear(joined.size(1), len(joined), bias=False), nn.Linear(len(joined), 1, bias=False)
    first.weight, last.weight = nn.Parameter(joined), nn.Parameter(score.weight.weight.detach())
    return nn.Sequential(first, nn.Tanh(), last)


def show() -> Iterator[tuple[str, Tensor | str]]:
    torch.manual_seed(0)
    q, k = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]])
    yield "q: two queries", q
    yield "k: three keys, the first and second equal to the queries, the third longer than the first", k
    for name, scores in (("uniform", uniform(q, k)), ("dot", dot(q, k)), ("scaled dot", scaled_dot(q, k))):
        yield f"{name}: scores of each query (row) and key (column)", scores
    gaussian = Gaussian(learned=False)(q, k)
    yield "gaussian, w = 1: the longer third key is no longer the best for the first query", gaussian

    additive = Additive(query_size=2, key_size=3, hidden=4).requires_grad_(False)
    keys = torch.randn(3, 3)
    scores_of_pairs = additive(q, keys)  # (2, 3)
    yield "additive, with random weights: scores of both queries and 3 random keys of 3 channels", scores_of_pairs
    pairs = torch.cat((q[:, None].expand(2, 3, 2), keys[None].expand(2, 3, 3)), dim=-1)  # (2, 3, 5)
    yield "the same from an MLP on each query and key side by side", as_mlp(additive)(pairs).squeeze(-1).detach()
    layer = MultiHeadAttention(6, 2, head_size=2, key_head_size=3, score=additive)
    shapes = [f"{name} {tuple(value.shape)}" for name, value in layer.trace(torch.randn(1, 5, 6)).items()]
    yield "a layer whose keys are wider than its queries", ", ".join(shapes)
