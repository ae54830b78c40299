"""Silence heads: the model runs as usual, but without their outputs."""

import contextlib
import functools
from collections.abc import Collection, Iterator

import torch
from torch import Tensor, nn

from experiments.heads.model_access import HeadIndex
from model.gpt import GPT


@contextlib.contextmanager
def silenced(model: GPT, heads: Collection[HeadIndex]) -> Iterator[None]:
    """Zero the outputs of these heads inside the context, before their layer's output projection."""
    with contextlib.ExitStack() as hooks:
        for layer, block in enumerate(model.blocks):
            attention = block.attention
            kept = torch.ones(attention.n_head, attention.head_size, device=attention.proj.weight.device)
            kept[[h for head_layer, h in heads if head_layer == layer]] = 0
            if not kept.all():
                multiply = functools.partial(_multiply, kept.flatten())
                hooks.enter_context(attention.proj.register_forward_pre_hook(multiply))
        yield


def _multiply(kept: Tensor, _module: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
    return (inputs[0] * kept.to(inputs[0].dtype),)
