"""Chapter 3: what can a head learn? What a position looks for, how it is found, and what it passes on.

Three linear maps turn each vector into a query, a key and a value:

    attention(Q, K, V) = softmax(Q K^T / sqrt(D)) V      (Vaswani et al., 2017, equation 1)

Queries and keys have separate maps because "i needs j" does not mean "j needs i". A causal mask, also called look-ahead
mask, hides the future, as in chapter 1. `Head` in chapter 9 is this computation as a module.

Next: chapter 4 lets several heads look for different things.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

# Three words and their embeddings; the worked example continues with these maps.
WORDS = ("cats", "chase", "mice")
EMBEDDINGS = [[1, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]]
QUERY_MAP = [[1, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1]]
KEY_MAP = [[0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 1, 0]]
VALUE_MAP = [[0, 2, 0], [0, 3, 0], [1, 0, 3], [1, 1, 0]]


def one_head(
    x: Tensor, query_map: Tensor, key_map: Tensor, value_map: Tensor, *, visible: Tensor | None = None
) -> dict[str, Tensor]:
    """Return every value inside a head by name: x (B, T, C), maps (C, D) -> Q, K, V and output (B, T, D).

    The scores and weights between are (B, T, T). visible (T, T) is False for each key that a query must not see.
    """
    q, k, v = x @ query_map, x @ key_map, x @ value_map  # (B, T, D) each
    raw = q @ k.transpose(-2, -1)  # (B, T, T); as an einsum, "bid,bjd->bij"
    scores = raw / k.size(-1) ** 0.5
    if visible is not None:
        scores = scores.masked_fill(~visible, float("-inf"))
    weights = F.softmax(scores, dim=-1)  # each row adds up to 1
    output = weights @ v  # "bij,bjd->bid"
    return {"Q": q, "K": k, "V": v, "raw scores": raw, "scores": scores, "weights": weights, "output": output}


FORMULAS = {
    "Q": "Q = X Wq",
    "K": "K = X Wk",
    "V": "V = X Wv",
    "raw scores": "raw scores = Q K^T",
    "scores": "scores = raw scores / sqrt(d_k), with d_k = D = 3 channels in a key",
    "weights": "weights = softmax(scores), row by row",
    "output": "output = weights V",
}


def show() -> Iterator[str | tuple[str, Tensor]]:
    embeddings, *maps = (torch.tensor(m, dtype=torch.float64) for m in (EMBEDDINGS, QUERY_MAP, KEY_MAP, VALUE_MAP))
    ids = torch.tensor([0, 1, 2])
    yield f"The words {', '.join(WORDS)} have ids, which number the rows of a table of embeddings", ids[None]
    x = embeddings[ids]
    yield "X: the embeddings of the three words", x
    for name, value in one_head(x, *maps).items():
        yield FORMULAS[name], value
    causal = one_head(x, *maps, visible=torch.tril(torch.ones(3, 3)) == 1)
    yield "With a causal mask, the scores of the future are -inf", causal["scores"]
    yield "weights with the mask: 0 for the future", causal["weights"]
    yield "output = weights V, with the mask", causal["output"]
    one_map = x @ maps[0]
    yield "raw scores with one map, (X Wq)(X Wq)^T: symmetric, so words need each other equally", one_map @ one_map.T

    rows = []
    for factor in (1.0, 8.0, 64.0):
        scores = torch.linspace(-1, 1, 8, dtype=torch.float64) * factor
        gradients = torch.autograd.functional.jacobian(lambda s: F.softmax(s, dim=0), scores)  # (8, 8)
        rows.append([factor, F.softmax(scores, dim=0).max().item(), gradients.abs().max().item()])
    yield (
        "Why scaling: larger scores make the softmax sharp, and its gradients vanish.\n"
        "Columns: factor of the scores; largest weight; largest gradient of a weight",
        torch.tensor(rows, dtype=torch.float64),
    )
