"""Remove heads from a checkpoint: the smaller model computes the same as the model with these heads silenced."""

import dataclasses
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from torch import Tensor

from cli.errors import UserError
from experiments.heads.model_access import HeadIndex
from model.shape import LayerShape
from training.runs.checkpoint import Checkpoint
from training.settings.config_file import to_dict
from training.state import Progress


def choose(order: Sequence[HeadIndex], n: int) -> list[HeadIndex]:
    """Return the first n heads of an order, but never the last head of a layer.

    Raises UserError if n heads cannot be removed.
    """
    left = Counter(layer for layer, _ in order)
    chosen: list[HeadIndex] = []
    for layer, h in order:
        if len(chosen) < n and left[layer] > 1:
            chosen.append((layer, h))
            left[layer] -= 1
    if len(chosen) < n or n < 1:
        raise UserError(f"--prune {n}: give 1 to {len(order) - len(left)} heads, because every layer keeps one")
    return chosen


def prune(checkpoint: Checkpoint, heads: Collection[HeadIndex]) -> Checkpoint:
    """Return the checkpoint without these heads.

    It keeps its step, so that a higher train.max_steps trains it further; the optimisers start from scratch.
    Raises UserError if heads share keys and values, so that no single head can be removed, or if head sizes differ
    between layers, because no config can describe the result.
    """
    config = checkpoint.config()
    layers = config.model.layers
    if any(layer.n_kv_head < layer.n_head for layer in layers):
        raise UserError("--prune: heads that share keys and values (model.n_kv_head) cannot be removed one by one")
    if len({layer.head_size for layer in layers}) > 1:
        raise UserError("--prune: head sizes differ between layers; set model.head_size in training to prune")
    kept = [[h for h in range(layer.n_head) if (i, h) not in heads] for i, layer in enumerate(layers)]
    model = dataclasses.replace(
        config.model, n_head=tuple(map(len, kept)), head_size=layers[0].head_size, n_kv_head=None
    )
    elapsed_s = checkpoint.progress.get("elapsed_s", 0.0)
    progress = Progress(step=checkpoint.step, best_step=checkpoint.step, elapsed_s=elapsed_s)
    return dataclasses.replace(
        checkpoint,
        settings=to_dict(dataclasses.replace(config, model=model)),
        model=keep_heads(checkpoint.model, layers, kept),
        trained=None,
        optimizers=[{} for _ in checkpoint.optimizers],
        progress=dataclasses.asdict(progress),
    )


def n_parameters(checkpoint: Checkpoint) -> int:
    return sum(value.numel() for value in checkpoint.model.values())


def keep_heads(
    weights: Mapping[str, Tensor], layers: Sequence[LayerShape], kept: Sequence[Sequence[int]]
) -> dict[str, Tensor]:
    """Return a state dict with only the kept heads of each layer.

    The rows of `qkv` contain queries, keys and values one after the other; the columns of `proj` read the heads.
    """
    weights = dict(weights)
    for i, (layer, heads) in enumerate(zip(layers, kept, strict=True)):
        H, D = layer.n_head, layer.head_size
        for name in (f"blocks.{i}.attention.qkv.weight", f"blocks.{i}.attention.qkv.bias"):
            if name in weights:
                weights[name] = weights[name].unflatten(0, (3, H, D))[:, heads].flatten(0, 2).clone()
        name = f"blocks.{i}.attention.qk_norm.log_scale"
        if name in weights:
            weights[name] = weights[name][heads].clone()
        name = f"blocks.{i}.attention.proj.weight"
        weights[name] = weights[name].unflatten(1, (H, D))[:, heads].flatten(1).clone()
    return weights
