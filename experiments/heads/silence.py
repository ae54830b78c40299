"""Silence heads: the model runs as usual, but without their outputs."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from data.batches import Ids, evaluation_windows, to_device
from experiments.heads.model_access import HeadIndex
from model.gpt import GPT
from training.evaluation import evaluation_mode, losses_of, windows_at_once
from training.runtime import Runtime

NGRAMS = "n-grams"  # the memory of n-grams, which can be silenced like a head
Parts = Sequence[HeadIndex | str]


@contextlib.contextmanager
def silenced(model: GPT, parts: Parts) -> Iterator[None]:
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


@torch.inference_mode()
def losses_without(
    model: GPT, ids: Ids, runtime: Runtime, sets: Sequence[Parts], *, n_characters: int | None, bar: tqdm
) -> tuple[Tensor, Tensor]:
    """Return each window's sum of losses with each of these sets silenced, (sets, windows) float64, and its characters.

    The windows are those of `evaluate`. bar: counts the windows of all sets.
    """
    size, at_once = model.config.block_size, windows_at_once(model, runtime)
    sums, n_targets = [], []
    with evaluation_mode(model):
        for batch in evaluation_windows(ids, block_size=size, batch_size=at_once, n_characters=n_characters):
            inputs, targets = (to_device(x, runtime.device) for x in batch)  # (B, T) each
            for logits in _logits_without(model, inputs, runtime, sets):
                sums.append(losses_of(logits, targets, runtime).view_as(targets).sum(-1).cpu())
                bar.update(len(targets))
            n_targets += [targets.size(1)] * len(targets)
    windows = [torch.stack(sums[i : i + len(sets)]) for i in range(0, len(sums), len(sets))]
    return torch.cat(windows, dim=1), torch.tensor(n_targets)


def _logits_without(model: GPT, ids: Tensor, runtime: Runtime, sets: Sequence[Parts]) -> Iterator[Tensor]:
    """Yield the logits (B, T, V) with each of these sets silenced.

    Blocks before the first one that differs from the set before are not computed again.
    """
    inputs: dict[nn.Module, Any] = {}  # of each block, in its latest pass
    hooks = [block.register_forward_pre_hook(inputs.__setitem__) for block in model.blocks]
    before: set[HeadIndex | str] = set()
    try:
        for parts in sets:
            changed, before = before.symmetric_difference(parts), set(parts)
            with silenced(model, parts), runtime.autocast():
                if not inputs or NGRAMS in changed:
                    logits = model(ids)
                else:
                    first = min(part.layer for part in changed if isinstance(part, HeadIndex))
                    x, *others = inputs[model.blocks[first]]
                    for block in model.blocks[first:]:
                        x = block(x, *others)
                    logits = model.predict(x)
            yield logits
    finally:
        for hook in hooks:
            hook.remove()
