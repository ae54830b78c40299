"""Silence heads: the model runs as usual, but without their outputs."""

import contextlib
from collections.abc import Collection, Iterator

import torch

from experiments.heads.model_access import HeadIndex
from model.gpt import GPT


@contextlib.contextmanager
def silenced(model: GPT, heads: Collection[HeadIndex]) -> Iterator[None]:
    """Zero the columns of the output projections that read these heads, inside the context."""
    weights = {layer: model.blocks[layer].attention.proj.weight for layer, _ in heads}
    before = {layer: weight.detach().clone() for layer, weight in weights.items()}
    with torch.no_grad():
        for layer, h in heads:
            D = model.blocks[layer].attention.head_size
            weights[layer][:, h * D : (h + 1) * D] = 0
    try:
        yield
    finally:
        with torch.no_grad():
            for layer, weight in weights.items():
                weight.copy_(before[layer])
