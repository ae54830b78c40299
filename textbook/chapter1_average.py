"""Chapter 1: how can a position use its past? In the simplest way, it takes the plain average of itself and all before
it.

A text is a sequence of tokens: characters in this project, words in some examples. Each token has a position, its place
in the text, and a vector, a row of numbers that describe it. The numbers are called the channels of the vector. To
predict the next token, a position may use itself and the positions before it, never those after it: they contain the
answer. This chapter computes the average of this past in three ways, with the same result: by a loop, by a product of
matrices, and by a softmax.

In the product of matrices y = weights x (weights @ x in PyTorch, the library used here), row t of y is the sum of the
rows of x, each times its weight in row t of the weights. A position with the weight 0 is hidden.

Where can weights come from? From scores, which say how much each position (column) matters to a position (row). A
softmax turns each row z of scores into weights:

    softmax(z)_i = exp(z_i) / sum_j exp(z_j)

exp(z) is 2.718 to the power z, which is above 0 for every number z, and exp(-inf) is 0. So no weight is negative, the
weights of a row add up to 1 (they are a probability distribution), equal scores get equal weights, and the score -inf
hides a position. Why not divide each score by the sum of its row? Scores may be negative, and their sum 0. And the
softmax makes the larger scores stand out: a score that is larger by 1 gets 2.718 times the weight, so equal differences
become equal ratios.

In this chapter, all scores of the past are 0. Chapter 2 takes them from the data. Then the weights differ from text to
text, as those of a fixed triangle cannot. So of the three ways, the softmax leads to attention: to averages whose
weights come from the data. Each title below ends with the shape of its matrix: (rows, columns).

Question: what are the weights if all scores of the past are 1? In `average_by_softmax`, write ones_like in place of
zeros_like.

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


def show() -> Iterator[str | tuple]:
    x = torch.tensor([[[4.0, 0.0], [2.0, 6.0], [0.0, 3.0]], [[1.0, 1.0], [1.0, 1.0], [7.0, 1.0]]])  # (2, 3, 2)
    yield "x, the first of two sequences: three positions of two channels", x[0]
    everything = average_by_matrix(x, torch.ones(3, 3))
    yield "weights of a plain average: each row is ones, divided by their sum", everything["weights"]
    yield "y = weights x: each position is the average of all, even the future", everything["y"][0]
    tril = torch.tril(torch.ones(3, 3))
    yield "tril (lower triangle): row t has a 1 for each position that t may use", tril
    by_matrix, by_softmax = average_by_matrix(x, tril), average_by_softmax(x, tril)
    yield "weights: the triangle with each row divided by its sum", by_matrix["weights"]
    yield "scores: zeros; masked_fill writes -inf where tril is 0", by_softmax["scores"]
    yield "weights = softmax(scores), row by row", by_softmax["weights"]
    rows = torch.tensor([[0.0, 1.0, 2.0], [5.0, 6.0, 7.0]])
    yield "Two rows of other scores", rows
    yield "Their softmax: each weight is 2.718 times the one before", F.softmax(rows, dim=-1)
    y = average_by_loop(x)
    yield "y = weights x: the averages of the first sequence", y[0]
    yield "x, the second sequence", x[1]
    yield "y: its averages, which never see the first sequence", y[1]
    equal = all(torch.allclose(y, form["y"]) for form in (by_matrix, by_softmax))
    yield f"Loop, matrix and softmax give {'the same' if equal else 'DIFFERENT results'}."
