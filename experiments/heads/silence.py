"""Silence heads: the model runs as usual, but without their outputs."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from cli.errors import UserError
from model.gpt import GPT

NGRAMS, COPIES = "n-grams", "copies"  # the memories, which can be silenced like a head


class HeadIndex(NamedTuple):
    """The place of a head in a model; both numbers count from 0."""

    layer: int
    number: int

    def __str__(self) -> str:
        return f"L{self.layer}H{self.number}"


def all_heads(model: GPT) -> list[HeadIndex]:
    """Return every head of the model, layer by layer. Raises UserError if there is none."""
    if not model.blocks:
        raise UserError("the model has no heads, because model.n_layer=0")
    return [HeadIndex(layer, h) for layer, block in enumerate(model.blocks) for h in range(block.attention.n_head)]


def memories(model: GPT) -> list[str]:
    """Return which of `NGRAMS` and `COPIES` the model has."""
    return [{"ngrams": NGRAMS, "copies": COPIES}[name] for name in model.memories]


@contextlib.contextmanager
def silenced(model: GPT, parts: Sequence[HeadIndex | str]) -> Iterator[None]:
    """Zero, inside the context, the weights by which these heads, or memories, join the sum that the blocks pass on."""
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
    """Return the columns of the output projection that read a head, or what a memory is multiplied by: a view."""
    if isinstance(part, str):
        name = {NGRAMS: "memories.ngrams.proj.weight", COPIES: "memories.copies.strengths"}[part]
        return model.get_parameter(name).detach()
    layer, h = part
    attention = model.blocks[layer].attention
    D = attention.head_size
    return attention.proj.weight.detach()[:, h * D : (h + 1) * D]
