"""A network without some of its heads: smaller, faster, and the same as with them silenced."""

import dataclasses
import math
from collections.abc import Collection, Sequence

from torch import Tensor

from experiments.heads.knock_out import Head
from model.shape import LayerShape
from training.checkpoint import Checkpoint
from training.config_file import to_dict


def choose(order: Sequence[Head], n: int) -> list[Head]:
    """The first n heads of an order, but for the last one of each layer, which must keep one.

    Raises ValueError where so many cannot go.
    """
    left = {}
    for layer, _ in order:
        left[layer] = left.get(layer, 0) + 1
    chosen = []
    for layer, h in order:
        if len(chosen) < n and left[layer] > 1:
            chosen.append((layer, h))
            left[layer] -= 1
    if len(chosen) < n or n < 1:
        raise ValueError(f"--prune {n}: between 1 and {len(order) - len(left)} heads can go, for every layer keeps one")
    return chosen


def prune(checkpoint: Checkpoint, heads: Collection[Head]) -> Checkpoint:
    """The checkpoint without these heads: their rows of the maps to q, k and v, and their columns of the output map.

    It stands at the same step, for training to go on from with a higher train.max_steps; the optimisers start anew.
    Raises ValueError where heads share keys and values, so that none can go by itself, and where those of different
    layers are of different sizes, for which there is no setting.
    """
    config = checkpoint.config()
    layers = config.model.layers
    if any(layer.n_kv_head < layer.n_head for layer in layers):
        raise ValueError("--prune: these heads share keys and values (model.n_kv_head), and none can go by itself")
    if len({layer.head_size for layer in layers}) > 1:
        raise ValueError("--prune: the layers have heads of different sizes; set model.head_size in training to prune")
    kept = [[h for h in range(layer.n_head) if (i, h) not in heads] for i, layer in enumerate(layers)]
    model = dataclasses.replace(
        config.model, n_head=tuple(map(len, kept)), head_size=layers[0].head_size, n_kv_head=None
    )
    weights = dict(checkpoint.model)
    for i, (layer, left) in enumerate(zip(layers, kept, strict=True)):
        for name, value in weights.items():
            if name.startswith(f"blocks.{i}.attention."):
                weights[name] = _slice(name.rpartition("attention.")[2], value, layer, left)
    progress = checkpoint.progress | {
        "best_loss": math.inf,
        "best_step": checkpoint.step,
        "evaluations_since_best": 0,
        "peak_memory_bytes": 0,
        "loss_sum": 0.0,
        "loss_count": 0,
    }
    return dataclasses.replace(
        checkpoint,
        settings=to_dict(dataclasses.replace(config, model=model)),
        model=weights,
        optimizers=[{} for _ in checkpoint.optimizers],
        progress=progress,
    )


def _slice(name: str, value: Tensor, layer: LayerShape, kept: list[int]) -> Tensor:
    """What is left of a layer's parameter: q, k and v lie behind each other in the rows of `qkv`."""
    H, D = layer.n_head, layer.head_size
    if name in ("qkv.weight", "qkv.bias"):
        return value.unflatten(0, (3, H, D))[:, kept].flatten(0, 2).clone()
    if name == "proj.weight":
        return value.unflatten(1, (H, D))[:, kept].flatten(1).clone()
    return value


def n_parameters(checkpoint: Checkpoint) -> int:
    return sum(math.prod(value.shape) for value in checkpoint.model.values())
