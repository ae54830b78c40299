"""Chapter 3: what can a head learn? What a position looks for, how it is found, and what it passes on.

Answer to the question of chapter 2: 0.98 cat, and only 0.02 walks, not 0.26. Scores are four times as large, so the
largest takes nearly all. Hence the division by sqrt(D) below.

A linear map multiplies a vector by a matrix W of parameters: x W. Each channel of the result is a weighted sum of the
channels of x. The new channels make other words similar: two may be alike as verbs, and unlike as names. A head of
attention has three linear maps, Wq, Wk and Wv, of the shape (C, D). They turn each vector into a query (what it looks
for), a key (how it is found) and a value (what it passes on). These are the rows of Q, K and V:

    attention(Q, K, V) = softmax(Q K^T / sqrt(D)) V

(Vaswani et al., 2017, equation 1). D is the number of channels of a query, and of a key: a dot product needs as many in
both. Queries and keys have separate maps because "cats" may need "chase" more than "chase" needs "cats". A causal mask,
also called look-ahead mask, hides the future by the triangle of chapter 1. Why hide it at all? A pass over T words is T
predictions: each position predicts the next word, and must not read it. A pass computes T x T scores, so twice the
context is four times the work.

`Head` in chapter 7 is this computation as a part of a model. In a browser, page/gpt.html shows the same steps in a
trained model: "How it was computed, line by line".

Question: how much of chase does mice read without the division by sqrt(D)? In `one_head`, write scores = raw.

Next: python -m textbook 4 lets several heads look for different things.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

WORDS = ("cats", "chase", "mice")
EMBEDDINGS = [[1, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]]
QUERY_MAP = [[1, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1]]
KEY_MAP = [[0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 1, 0]]
VALUE_MAP = [[0, 2, 0], [0, 3, 0], [1, 0, 3], [1, 1, 0]]


def one_head(
    x: Tensor, query_map: Tensor, key_map: Tensor, value_map: Tensor, *, tril: Tensor | None = None
) -> dict[str, Tensor]:
    """Return every value inside a head by name: x (B, T, C), maps (C, D) -> Q, K, V and output (B, T, D).

    The scores and the weights are (B, T, T). tril (T, T) is 0 for each key that a query must not see.
    """
    q, k, v = x @ query_map, x @ key_map, x @ value_map  # (B, T, D) each
    raw = q @ k.transpose(-2, -1)  # (B, T, T)
    scores = raw / k.size(-1) ** 0.5
    masked = scores if tril is None else scores.masked_fill(tril == 0, float("-inf"))
    weights = F.softmax(masked, dim=-1)  # each row adds up to 1
    output = weights @ v  # (B, T, D)
    before_mask = {"Q": q, "K": k, "V": v, "raw scores": raw, "scores": scores}
    return before_mask | {"masked scores": masked, "weights": weights, "output": output}


FORMULAS = {
    "Q": "Q = X Wq: what each word looks for",
    "K": "K = X Wk: how each word is found",
    "V": "V = X Wv: what each word passes on",
    "raw scores": "raw scores = Q K^T",
    "scores": "scores = raw scores / sqrt(D), with D = 3 channels in a key",
    "weights": "weights = softmax(scores), row by row",
    "output": "output = weights V: every word sees every word, even the later ones",
}
FOUR_STEPS = {
    "masked scores": "2. masked_fill(tril == 0, -inf): the scores, without the future",
    "weights": "3. softmax: weights that are 0 for the future",
    "output": "4. weights V: each word sees itself and the words before",
}


def show() -> Iterator[str | tuple]:
    table, *maps = (torch.tensor(m, dtype=torch.float64) for m in (EMBEDDINGS, QUERY_MAP, KEY_MAP, VALUE_MAP))
    one_hot = F.one_hot(torch.tensor([0, 1, 2])).double()
    yield f"One-hot rows: a 1 at the number (id) of each of {', '.join(WORDS)}", one_hot, WORDS
    x = one_hot @ table
    yield "X = one-hot rows times a table of vectors (embeddings): rows 0, 1 and 2", x, WORDS
    yield "Three maps, chosen for this example; in a model, they are random at first, then trained.\n"
    for name, one_map in zip(("Wq", "Wk", "Wv"), maps, strict=True):
        yield name, one_map
    traced = one_head(x, *maps)
    for name, title in FORMULAS.items():
        yield title, traced[name], WORDS
        if name == "scores":
            products = " + ".join(f"{a:.0f} x {b:.0f}" for a, b in zip(traced["Q"][2], traced["K"][1], strict=True))
            yield f"mice asks chase: ({products}) / sqrt(3) = {traced['scores'][2, 1]:.2f}\n"
    terms = [f"{weight:.3f} V_{word}" for weight, word in zip(traced["weights"][2], WORDS, strict=True)]
    yield f"output of mice = {' + '.join(terms)}\n"

    yield "To predict the next word, a head must not see it. Four steps follow the scores.\n"
    tril = torch.tril(torch.ones(3, 3))
    yield "1. tril, a lower triangle: row t has a 1 for each word that t may see", tril, WORDS
    for name, title in FOUR_STEPS.items():
        yield title, one_head(x, *maps, tril=tril)[name], WORDS
    yield (
        "Let cats and chase change places. Without the mask, their outputs only change places, too. With it, cats now "
        "sees chase, and chase no longer sees cats.\n"
    )
    exchanged, names = x[[1, 0, 2]], ("chase", "cats", "mice")
    yield "X for chase, cats, mice", exchanged, names
    yield "Its output with the mask: two other rows", one_head(exchanged, *maps, tril=tril)["output"], names
    yield (
        "mice still sees the same three words, and cannot tell in which order they came. A head of a second layer, "
        "which reads these outputs, can, because those of the other two have changed. Vectors that say where a word "
        "stands tell it at once (chapters 4 and 7).\n"
    )

    symmetric = one_head(x, maps[0], maps[0], maps[2])["raw scores"]
    yield "raw scores with Wk = Wq, symmetric: cats to mice is mice to cats", symmetric, WORDS
    yield (
        "Why divide? If all channels are independent, with mean 0 and variance 1 (mean square), a product of two has "
        "variance 1, and a raw score, the sum of D products, variance D. So raw scores grow like its root, sqrt(D).\n"
    )
    scores = torch.tensor([[0.1, -0.2, 0.3, -0.2, 0.5]], dtype=torch.float64)
    weights = F.softmax(torch.tensor([[1], [8], [64]]) * scores, dim=-1)
    yield "Softmax of 1, 8 and 64 times (0.1, -0.2, 0.3, -0.2, 0.5)", weights
    gradients = (weights * (1 - weights)).amax(dim=1)  # the largest d weight_i / d score_j, at i = j
    found = ", ".join(f"{gradient:.3g}" for gradient in gradients)
    yield (
        "With large scores, one weight is nearly 1. Training follows slopes (chapter 6): if the score of a weight p "
        "rises by a little, p rises by p (1 - p) times as much. The largest p (1 - p) of the rows are "
        f"{found}. Where they vanish, the maps of queries and keys stop learning."
    )
