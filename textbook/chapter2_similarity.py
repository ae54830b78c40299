"""Chapter 2: which positions matter to a position? In the simplest answer, those that resemble it.

Answer to the question of chapter 1: the same. A softmax sees only differences of scores.

How much do two vectors resemble each other? Their dot product tells: multiply channel by channel, and add. Call it the
score of the two. Both need the same number of channels. Drawn as arrows, vectors of given lengths have the largest
score if they point the same way. Suppose that the channels are features: how much a user likes romance and action, and
how much of each a film has. Features of the same sign raise the score, opposite signs lower it, and small features
count little. Nobody can label millions of films. So features become parameters: numbers that are fitted to data, here
to what users liked. To fit parameters is to train a model. The features gain a meaning without labels: similar films
get similar ones. Two features make a film a point in a plane; --output films.png draws it.

The words of a text have vectors, too. If each word becomes a sum of all words, itself included, weighted by the softmax
of its scores, this is self-attention without parameters:

    y = softmax(x x^T) x

The rows of x are the columns of x^T, so x x^T holds the dot product of each pair of words. Row i of y is a weighted sum
of all words, y_i = sum_j weight_ij x_j. The weights of attention are no parameters: they are computed anew for each
text. What training changes is the vectors: "the" says little about other words, so its scores should become small; who
walks matters, so the score of "cat" and "walks" should become large.

The input is a set (a word may be in it twice): in another order, the words have the same outputs. Chapters 3, 4 and 7
show how a model knows their order. In the models of chapters 7 and 8, attention is the only operation between
positions; everything else works on each position alone.

Here, each vector does three things at once: it asks, it is found, and it is passed on. So a word finds only what is
like itself, and scores are symmetric: that of "walks" for "cat" is that of "cat" for "walks". What should be related
depends on a purpose, which for a language model is to predict the next word.

Question: what does cat read if all vectors are twice as long? In `show`, write x = 2 * torch.tensor(...).

Next: python -m textbook 3 gives each word three vectors, and hides the future.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from timeit import timeit

import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

USERS, FILMS = (
    {"ann": (1.0, -1.0), "bob": (0.5, 2.0)},
    {"a love story": (2.0, -1.0), "a war film": (-1.0, 2.0), "a comedy": (1.0, 0.1)},
)
NAMES = ("love story 1", "love story 2", "war film", "western", "comedy")
SENTENCE = ("the", "cat", "walks", "on", "the", "street")
# how much six users liked two love stories, a war film, a western and a comedy
LIKES = [[5, 4, -4, -5, 1], [4, 4, -5, -4, 0], [5, 5, -5, -4, 1], [-4, -5, 5, 4, 1], [-5, -4, 4, 5, 0], [3, 3, 4, 3, 4]]
EMBEDDINGS = {"the": [0, -1, 0], "cat": [2, 1, 0], "walks": [2, 0, 1], "on": [0, 0, 1], "street": [0, 1, 2]}


def attend_by_loop(x: Tensor) -> Tensor:
    """Return y_i = sum_j weight_ij x_j of one sequence, weight_i = softmax(x_i . x_1, ..., x_i . x_T): (T, C)."""
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

    The singular value decomposition has them (Eckart and Young, 1936). Many users and films have the same products; of
    these, it has features of users at right angles. Then films are alike if users like them alike.
    """
    users, sizes, films = torch.linalg.svd(likes)
    return users[:, :n_features], films[:n_features].T * sizes[:n_features]


def show(output: Path | None = None) -> Iterator[str | tuple[str, Tensor]]:
    users, films = torch.tensor(list(USERS.values())), torch.tensor(list(FILMS.values()))
    yield f"Users {' and '.join(USERS)} (rows): how they like romance and action (columns)", users
    yield f"Films, {', '.join(FILMS)}: how much they have of both", films
    yield "scores = users films^T; ann and the love story, 1 x 2 + -1 x -1 = 3", users @ films.T
    likes = torch.tensor(LIKES, dtype=torch.float64)
    yield "What six users liked, -5 to 5: 2 love stories, war film, western, comedy", likes
    users, films = fit_features(likes, 2)
    yield "Only their products count, so one table may have large numbers and the other small ones.\n"
    yield "Two fitted features of each film: similar films get similar ones", films
    yield "Two fitted features of each user", users
    yield "users films^T of the fitted features: close to what they liked", users @ films.T

    x = torch.tensor([EMBEDDINGS[word] for word in SENTENCE], dtype=torch.float64)
    traced = attend_by_matrix(x)
    yield f"x, chosen by hand: rows for {', '.join(SENTENCE)}", x
    yield "scores = x x^T: 'cat' matches 'walks'; 'the' matches only 'the'", traced["scores"]
    yield "weights = softmax(scores), row by row", traced["weights"]
    yield "y = weights x: both rows of 'the' are still the same", traced["y"]
    terms = [f"{weight:.2f} {word}" for weight, word in zip(traced["weights"][1], SENTENCE, strict=True)]
    yield f"y_cat = {' + '.join(terms)}"
    yield f"A score of 0 still gives a weight: 'the' takes {traced['weights'][0, 2]:.2f} from 'walks'."
    equal = torch.allclose(attend_by_loop(x), traced["y"])
    yield f"A loop over all pairs of words gives {'the same' if equal else 'DIFFERENT results'}."
    many, forms = x.repeat(10, 1), (attend_by_loop, attend_by_matrix)
    in_ms = (1000 * timeit(partial(form, many), number=1) for form in forms)
    yield "For {} words, it took {:.1f} ms, and products of matrices {:.1f} ms.".format(len(many), *in_ms)
    order = torch.tensor([2, 0, 3, 1, 5, 4])
    is_set = torch.allclose(attend_by_matrix(x[order])["y"], traced["y"][order])
    yield f"Words in another order have {'the same' if is_set else 'DIFFERENT'} outputs: x is a set."
    if output:
        draw(output)


def draw(path: Path) -> None:
    """Draw users and films as points of a plane: the two chosen features, and the two fitted ones."""
    figure = Figure(figsize=(12, 5.5), layout="constrained")
    chosen, fitted = figure.subplots(1, 2)
    _, films = fit_features(torch.tensor(LIKES, dtype=torch.float64), 2)
    _draw_points(chosen, USERS, marker="^", color="tab:blue", label="user")
    _draw_points(chosen, FILMS, color="tab:orange", label="film")
    _draw_points(fitted, dict(zip(NAMES, films.tolist(), strict=True)), color="tab:orange")
    chosen.set(title="Chosen features", xlabel="romance", ylabel="action")
    fitted.set(title="Features fitted to what six users liked", xlabel="feature 1", ylabel="feature 2")
    chosen.legend()
    figure.savefig(path, dpi=120)


def _draw_points(axes: Axes, points: Mapping[str, Sequence[float]], **style) -> None:
    axes.scatter(*zip(*points.values(), strict=True), **style)
    for i, (name, (x, y)) in enumerate(points.items()):
        side = "left" if i % 2 else "right"  # so that names of neighbours do not overlap
        axes.annotate(name, (x, y), xytext=(8 if i % 2 else -8, 0), textcoords="offset points", ha=side, va="center")
    axes.axhline(0, color="tab:gray", linewidth=0.8)
    axes.axvline(0, color="tab:gray", linewidth=0.8)
    axes.margins(0.35)
    axes.set_aspect("equal", "datalim")
