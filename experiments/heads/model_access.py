"""Read a model: its heads, and their scales and attention weights."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from cli.errors import UserError
from data.batches import Ids
from data.vocabulary import Vocabulary
from model.gpt import GPT
from training.trained_model import weights_of

Window = tuple[Tensor, str]  # attention weights (N, T, T) of N heads for a text of T characters, and the text


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


def read_windows(model: GPT, vocabulary: Vocabulary, ids: Ids, n: int) -> Iterator[Window]:
    """Yield n windows of block_size ids, spread evenly over ids; fewer if they would overlap."""
    T = model.config.block_size
    starts = np.linspace(0, len(ids) - T, num=min(n, len(ids) // T), dtype=np.int64)
    for start in tqdm(starts, desc="Measuring heads", disable=None, leave=False):
        window = ids[start : start + T]
        yield torch.cat(weights_of(model, window)), vocabulary.decode(window.tolist())


def scales_of(model: GPT) -> Tensor | None:
    """Return the scale s of every head (N,), see `QueryKeyNorm`, or None if scores are not s cos(q, k)."""
    norms = [block.attention.qk_norm for block in model.blocks]
    scales = [norm.scales().detach() for norm in norms if norm]
    return torch.cat(scales).double().cpu() if scales and model.config.score == "scaled_dot" else None
