"""Chapter 4, applied: what does a layer do to a picture? Each patch becomes a mixture of patches, by dot products.

An 8 x 8 picture is cut into four patches of 16 numbers, the vectors of a sequence. The layer of chapter 5 has
one head of 16 channels and maps that change nothing, so queries, keys and values are the patches.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from model.textbook.chapter5b_layer import MultiHeadAttention

# The patches, row by row: upper left, upper right, lower left, lower right.
PALE = [0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0]
DARK = [0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 1, 1, 0]
PATCHES = [PALE, DARK, PALE, DARK]


def picture(patches: Tensor) -> Tensor:
    """Return the picture (8, 8) of four patches (4, 16)."""
    return patches.view(2, 2, 4, 4).transpose(1, 2).reshape(8, 8)


def identity_layer(width: int) -> MultiHeadAttention:
    """Return a layer of one head whose maps are identities."""
    layer = MultiHeadAttention(width, 1).double().requires_grad_(False)
    for weight in layer.parameters():
        weight.copy_(torch.eye(width))
    return layer


def show() -> Iterator[tuple[str, Tensor | str]]:
    a = torch.tensor([PATCHES], dtype=torch.float64)  # (1, 4, 16)
    traced = identity_layer(16).trace(a)
    yield "The picture: patches X1 and X2 above X3 and X4", picture(a[0])
    yield "a: the four patches as vectors", a
    for name in ("Q", "K", "V"):
        yield f"{name} = a, because its map is the identity", traced[name]
    yield "scores = Q K^T / sqrt(16): one row per query, one column per key", traced["scores"]
    yield "weights = softmax(scores), row by row", traced["weights"]
    yield "output = weights V, as a picture", picture(traced["output"][0])
