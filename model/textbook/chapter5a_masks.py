"""Chapter 5: which keys may a query see? All that no mask hides; in every mask, 0 or False means hidden.

A padding mask hides the positions that only fill up a short sequence. An attention mask hides keys from single queries
in self-attention; the look-ahead (causal) mask of chapter 1 is one. A memory mask does so in cross-attention, where a
decoder reads what an encoder has written, as in translation: the query is a word of the French sentence so far, keys
and values are the words of the English one. A query that sees no key gets weights of 0; a plain softmax gives NaN.

Next: `chapter5b_layer.py` is the complete multi-head layer.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from model.attention import causal_mask, masked_softmax


def combine_masks(
    *,
    shape: tuple[int, int, int],
    padding_mask: Tensor | None = None,
    attention_mask: Tensor | None = None,
    memory_mask: Tensor | None = None,
) -> Tensor | None:
    """Combine masks into one that broadcasts to (B, 1, T, S), True where no mask hides the key; None without masks.

    padding_mask (B, S) hides keys of a sequence, attention_mask (T, S) and memory_mask (T, S) keys from a query. shape:
    (B, T, S). Raises ValueError if a mask has the wrong shape.
    """
    B, T, S = shape
    visible = None
    for name, mask, letters, expected in (
        ("padding_mask", padding_mask, "(B, S)", (B, S)),
        ("attention_mask", attention_mask, "(T, S)", (T, S)),
        ("memory_mask", memory_mask, "(T, S)", (T, S)),
    ):
        if mask is None:
            continue
        if mask.shape != expected:
            raise ValueError(f"{name} has shape {tuple(mask.shape)}; expected {letters} = {expected}")
        mask = mask != 0 if letters == "(T, S)" else mask[:, None, None, :] != 0  # (T, S) or (B, 1, 1, S)
        visible = mask if visible is None else visible & mask
    return visible


def require_keywords(misplaced: tuple, *names: str) -> None:
    """Raise TypeError if masks were passed by position, because their order would decide what they hide."""
    if misplaced:
        raise TypeError(f"{len(misplaced)} masks by position; pass each by its name: {', '.join(names)}")


def show() -> Iterator[tuple[str, Tensor | str]]:
    padding = torch.tensor([[1, 1, 1, 1], [0, 1, 1, 0]])  # any position may be hidden
    yield "padding mask (B, S): the first and last position of the second sequence only fill it up", padding
    yield "look-ahead mask (T, S): each query sees itself and the past", causal_mask(4, 4).int()
    both = combine_masks(shape=(2, 4, 4), padding_mask=padding, attention_mask=causal_mask(4, 4))
    assert both is not None
    yield "both, for the second sequence: a key is visible if no mask hides it", both[1, 0].int()
    weights = masked_softmax(torch.zeros(2, 1, 4, 4), visible=both)[1, 0]
    yield "its weights for equal scores: the first query sees no key, so its row is 0", weights
