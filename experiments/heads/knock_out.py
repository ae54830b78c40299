"""What heads are worth: the validation loss with some of them silenced."""

import contextlib
from collections.abc import Collection, Iterator, Sequence

import numpy as np
import torch
from torch import nn

from model.gpt import GPT
from training.evaluation import evaluate
from training.runtime import Runtime

Head = tuple[int, int]  # layer, head of the layer; both from 0


def all_heads(model: GPT) -> list[Head]:
    """Every head of the model, those of the first layer first."""
    return [(layer, h) for layer, block in enumerate(model.blocks) for h in range(block.attention.n_head)]


@contextlib.contextmanager
def silenced(model: GPT, heads: Collection[Head]) -> Iterator[None]:
    """Within, what these heads give is zero before their layer's output map reads it."""
    hooks = []
    try:
        for layer, block in enumerate(model.blocks):
            attention = block.attention
            kept = torch.ones(attention.n_head, attention.head_size, device=attention.proj.weight.device)
            for head_layer, h in heads:
                if head_layer == layer:
                    kept[h] = 0
            if not kept.all():
                hooks.append(attention.proj.register_forward_pre_hook(_multiplying(kept.flatten())))
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _multiplying(kept: torch.Tensor):
    def hook(_module: nn.Module, inputs: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        return (inputs[0] * kept.to(inputs[0].dtype),)

    return hook


def loss_without(model: GPT, heads: Collection[Head], ids: np.ndarray, runtime: Runtime) -> float:
    """Validation loss over ids with these heads silenced, nats per character; see `evaluate`."""
    with silenced(model, heads):
        return evaluate(model, ids, model.config.block_size, runtime).loss


def rank(losses: dict[Head, float]) -> list[Head]:
    """Heads from the least important on: the one whose loss, when it alone is silenced, is the lowest, comes first."""
    return sorted(losses, key=lambda head: (losses[head], head))


def cumulative_losses(model: GPT, order: Sequence[Head], ids: np.ndarray, runtime: Runtime) -> Iterator[float]:
    """Validation loss with the first 1, 2, ... heads of an order silenced."""
    for n in range(1, len(order) + 1):
        yield loss_without(model, order[:n], ids, runtime)
