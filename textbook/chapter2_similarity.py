"""Chapter 2: which positions matter to a position? In the simplest answer, those that resemble it.

The score of two vectors is their dot product: multiply channel by channel, and add. Suppose that the channels are
features: how much users like romance and action, and how much of each a film has. Features of the same sign add to the
score, opposite signs subtract from it, and small features count little. Nobody can label millions of films, so features
become parameters: random at first, then fitted to what users liked. They gain a meaning without labels.

Among the words of a text, this is self-attention without parameters:

    y = softmax(x x^T) x

x^T has the rows of x as columns, so x x^T holds all dot products. Each row of y is a weighted sum of all words. The
weights of attention are no parameters: w_ij is computed anew from the words of each text, and lies between 0 and 1.
Training decides the features. "the" says little, so its scores with other words become small; who walks matters, so the
score of "cat" and "walks" becomes large. The input is a set: attention ignores the order of words. Attention is the
only operation between positions.

Next: python -m textbook 3 gives each word three vectors, by learned maps, and hides the future.
"""

import math
from collections.abc import Iterator
from functools import partial
from timeit import timeit

import torch
import torch.nn.functional as F
from torch import Tensor

SENTENCE = ("the", "cat", "walks", "on", "the", "street")
# how much six users liked two love stories, a war film, a western and a comedy
LIKES = [[5, 4, -4, -5, 1], [4, 4, -5, -4, 0], [5, 5, -5, -4, 1], [-4, -5, 5, 4, 1], [-5, -4, 4, 5, 0], [3, 3, 4, 3, 4]]
EMBEDDINGS = {"the": [0, -1, 0], "cat": [2, 1, 0], "walks": [2, 0, 1], "on": [0, 0, 1], "street": [0, 1, 2]}


def attend_by_loop(x: Tensor) -> Tensor:
    """Return y_i = sum_j w_ij x_j of one sequence, with w_ij = exp(x_i . x_j) / sum_k exp(x_i . x_k): (T, C)."""
    y = torch.zeros_like(x)
    for i in range(len(x)):
        likeness = [math.exp(x[i].dot(x[j])) for j in range(len(x))]
        for j in range(len(x)):
            y[i] += likeness[j] / sum(likeness) * x[j]
    return y


def attend_by_matrix(x: Tensor) -> dict[str, Tensor]:
    """Return the same for all sequences at once, y (B, T, C), with the scores and weights (B, T, T)."""
    scores = x @ x.transpose(-2, -1)
    weights = F.softmax(scores, dim=-1)
    return {"scores": scores, "weights": weights, "y": weights @ x}


def fit_features(likes: Tensor, n_features: int) -> tuple[Tensor, Tensor]:
    """Return features of users (U, n_features) and films (F, n_features): users films^T is as near likes as possible.

    From random films on, each side in turn is fitted to the other by least squares.
    """
    films = torch.randn(likes.size(1), n_features, generator=torch.Generator().manual_seed(0), dtype=likes.dtype)
    for _ in range(50):
        users = torch.linalg.lstsq(films, likes.T).solution.T
        films = torch.linalg.lstsq(users, likes).solution.T
    return users, films


def show() -> Iterator[str | tuple[str, Tensor]]:
    users = torch.tensor([[1.0, -1.0], [0.5, 2.0]])
    yield "How much two users, ann and bob, like romance and action (columns)", users
    films = torch.tensor([[2.0, -1.0], [-1.0, 2.0], [1.0, 0.1]])
    yield "How much a love story, a war film and a comedy have of both", films
    yield "scores = users films^T; ann and the love story, 1 x 2 + -1 x -1 = 3", users @ films.T
    likes = torch.tensor(LIKES, dtype=torch.float64)
    yield "What six users liked: two love stories, two films with fights, a comedy", likes
    users, films = fit_features(likes, 2)
    yield "Two fitted features of each film: similar films get similar ones", films
    yield "Two fitted features of each user", users
    yield "users films^T of the fitted features: close to what they liked", users @ films.T

    x = torch.tensor([EMBEDDINGS[word] for word in SENTENCE], dtype=torch.float64)
    traced = attend_by_matrix(x)
    yield f"x, chosen by hand: rows for {', '.join(SENTENCE)}", x
    yield "scores = x x^T: 'cat' matches 'walks'; 'the' matches no other word", traced["scores"]
    yield "weights = softmax(scores), row by row", traced["weights"]
    yield "y = weights x: both rows of 'the' are still the same", traced["y"]
    terms = [f"{weight:.2f} {word}" for weight, word in zip(traced["weights"][1], SENTENCE, strict=True)]
    yield f"y_cat = {' + '.join(terms)}"
    others = traced["weights"][0, [word != "the" for word in SENTENCE]].sum()
    yield f"A score of 0 still gives a weight: in the row of 'the', other words have {others:.2f}."
    equal = torch.allclose(attend_by_loop(x), traced["y"])
    yield f"A loop over all pairs of words gives {'the same' if equal else 'DIFFERENT results'}."
    many, forms = x.repeat(10, 1), (attend_by_loop, attend_by_matrix)
    in_ms = (1000 * timeit(partial(form, many), number=1) for form in forms)
    yield "For {} words, it took {:.1f} ms, and products of matrices {:.1f} ms.".format(len(many), *in_ms)
    order = torch.tensor([2, 0, 3, 1, 5, 4])
    is_set = torch.allclose(attend_by_matrix(x[order])["y"], traced["y"][order])
    yield f"Words in another order have {'the same' if is_set else 'DIFFERENT'} outputs: x is a set.\n"

    yield "A sum of C products of variance 1 has variance C. Chapter 3 adds D products, and"
    yield "divides by sqrt(D)."
    yield "The length of (c, ..., c) grows alike: it is c sqrt(C).\n"
    yield "     C   length of (3, ..., 3)         std of products        std / sqrt(C)"
    for C in (4, 64, 1024):
        a, b = torch.randn(2, 2000, C, generator=torch.Generator().manual_seed(C), dtype=torch.float64)
        length, spread = torch.full((C,), 3.0).norm(), (a * b).sum(dim=-1).std()
        yield f"  {C:4}   {length:21.1f}   {spread:21.4f}   {spread / C**0.5:18.4f}"
