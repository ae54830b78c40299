"""Remove heads from a model: the smaller model computes the same as the model with these heads silenced."""

import dataclasses
from collections import Counter
from collections.abc import Collection, Sequence

import torch

from cli.errors import UserError
from experiments.heads.model_access import HeadIndex
from training.config_file import to_yaml
from training.runs.checkpoint import Checkpoint
from training.runs.run_folder import RunFolder
from training.state import Progress
from training.trained_model import TrainedModel


def choose(order: Sequence[HeadIndex], n: int) -> list[HeadIndex]:
    """Return the first n heads of an order, but never the last head of a layer.

    Raises UserError if n heads cannot be removed.
    """
    left = Counter(layer for layer, _ in order)
    chosen: list[HeadIndex] = []
    for layer, h in order:
        if len(chosen) < n and left[layer] > 1:
            chosen.append(HeadIndex(layer, h))
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
    config, weights = checkpoint.config, checkpoint.weights
    layers = config.model.layers
    if any(layer.n_kv_head < layer.n_head for layer in layers):
        raise UserError("--prune: heads that share keys and values (model.n_kv_head) cannot be removed one by one")
    if len({layer.head_size for layer in layers}) > 1:
        raise UserError("--prune: head sizes differ between layers; set model.head_size in training to prune")
    D, n_left = layers[0].head_size, []
    for i, H in enumerate(layer.n_head for layer in layers):
        kept = [h for h in range(H) if (i, h) not in heads]
        n_left.append(len(kept))
        # Rows of qkv: queries, keys and values, one after the other. Columns of proj: they read the heads.
        of_heads = torch.arange(H * D).view(H, D)[kept].flatten()
        of_qkv = torch.cat([of_heads, of_heads + H * D, of_heads + 2 * H * D])
        rows = {"qkv.weight": of_qkv, "qkv.bias": of_qkv, "qk_norm.log_scale": torch.tensor(kept)}
        for part, row in rows.items():
            if (name := f"blocks.{i}.attention.{part}") in weights:
                weights[name] = weights[name][row]
        name = f"blocks.{i}.attention.proj.weight"
        weights[name] = weights[name].index_select(1, of_heads)
    model = dataclasses.replace(config.model, n_head=tuple(n_left), head_size=D, n_kv_head=None)
    progress = Progress(step=checkpoint.step, best_step=checkpoint.step, elapsed_s=checkpoint.progress.elapsed_s)
    return dataclasses.replace(
        checkpoint,
        config=dataclasses.replace(config, model=model),
        tensors={f"model.{name}": x for name, x in weights.items()},
        progress=progress,
    )


def write_pruned(opened: TrainedModel, heads: list[HeadIndex]) -> str:
    """Create a run folder with the model without these heads; return a summary to print."""
    pruned = prune(opened.checkpoint, heads)
    new = RunFolder.create(f"{opened.name}-pruned-{len(heads)}", to_yaml(pruned.config))
    new.save(pruned, is_best=True)
    names, n_left = ", ".join(map(str, sorted(heads))), pruned.build_model().n_parameters()
    return (
        f"Without {names}: {n_left:,} parameters, {opened.model.n_parameters():,} before. To use it:\n"
        f"  python sample.py --checkpoint {new.path}\n"
        f"  python -m experiments.score --checkpoint {new.path}\n"
        f"  python train.py --resume {new.path} train.max_steps={pruned.step + max(100, pruned.step // 5)}"
    )
