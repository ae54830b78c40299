"""Silence heads: the model runs as usual, but without their outputs."""

import contextlib
from collections.abc import Collection, Iterator

import torch
from torch import Tensor

from experiments.heads.model_access import HeadIndex
from model.gpt import GPT

NGRAMS = "n-grams"  # the memory of n-grams, which can be silenced like a head


@contextlib.contextmanager
def silenced(model: GPT, parts: Collection[HeadIndex | str]) -> Iterator[None]:
    """Zero, inside the context, the weights by which these heads, or `NGRAMS`, join the sum that the blocks pass on."""
    weights = [_output_weights(model, part) for part in parts]
    before = [x.clone() for x in weights]
    with torch.no_grad():
        for x in weights:
            x.zero_()
    try:
        yield
    finally:
        with torch.no_grad():
            for x, old in zip(weights, before, strict=True):
                x.copy_(old)


def _output_weights(model: GPT, part: HeadIndex | str) -> Tensor:
    """Return the columns of the output projection that read a head, or the map of the n-grams: a view."""
    if isinstance(part, str):
        assert model.ngrams is not None
        return model.ngrams.proj.weight.detach()
    layer, h = part
    attention = model.blocks[layer].attention
    D = attention.head_size
    return attention.proj.weight.detach()[:, h * D : (h + 1) * D]
