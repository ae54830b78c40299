"""Access to heads and embeddings: the only module here that depends on the model's submodules and tensors."""

import contextlib
import functools
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from model.gpt import GPT
from model.self_attention import SelfAttention
from model.shape import LayerShape

HeadIndex = tuple[int, int]  # layer, head in the layer; both from 0


def all_heads(model: GPT) -> list[HeadIndex]:
    """Return every head of the model, layer by layer."""
    return [(layer, h) for layer, block in enumerate(model.blocks) for h in range(block.attention.n_head)]


@torch.inference_mode()
def weights_of(model: GPT, ids: np.ndarray) -> Tensor:
    """Return the attention weights (N, T, T) of all N heads for ids (T,), float32, on the CPU."""
    weights: list[Tensor] = []

    def keep(layer: SelfAttention, inputs: tuple) -> None:
        x, positions, places, _ = inputs
        weights.append(layer.weights(x, positions, places)[0].float().cpu())

    with contextlib.ExitStack() as hooks:
        for block in model.blocks:
            hooks.enter_context(block.attention.register_forward_pre_hook(keep))
        model(torch.from_numpy(ids.astype(np.int64))[None].to(model.lm_head.weight.device))
    return torch.cat(weights)


def character_embeddings(model: GPT) -> Tensor:
    """Return the embeddings (V, C) of the vocabulary, float64, on the CPU."""
    return model.token_embedding.weight.detach().double().cpu()


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
        name = f"blocks.{i}.attention.proj.weight"
        weights[name] = weights[name].unflatten(1, (H, D))[:, heads].flatten(1).clone()
    return weights
