"""Silence heads: the model runs as usual, but without their outputs."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from model.gpt import GPT


class HeadIndex(NamedTuple):
    """The place of a head in a model; both numbers count from 0."""

    layer: int
    number: int

    def __str__(self) -> str:
        return f"L{self.layer}H{self.number}"


Part = HeadIndex | str  # a head, or a memory by its name


def parts_of(model: GPT) -> dict[Part, Tensor]:
    """Return every head, layer by layer, and every memory, with a view of the weights by which it joins the sum."""
    parts: dict[Part, Tensor] = {}
    for layer, block in enumerate(model.blocks):
        columns = block.attention.proj.weight.detach().split(block.attention.head_size, dim=1)
        parts |= {HeadIndex(layer, h): x for h, x in enumerate(columns)}
    for name, weights in (("n-grams", "memories.ngrams.proj.weight"), ("copies", "memories.copies.strengths")):
        if weights in dict(model.named_parameters()):
            parts[name] = model.get_parameter(weights).detach()
    return parts


@contextlib.contextmanager
def silenced(model: GPT, parts: Sequence[Part]) -> Iterator[None]:
    """Zero, inside the context, the weights by which these heads, or memories, join the sum that the blocks pass on."""
    weights = [parts_of(model)[part] for part in parts]
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
