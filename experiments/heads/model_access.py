"""Read a model: its heads, their attention weights, and its embeddings."""

import contextlib

import numpy as np
import torch
from torch import Tensor

from model.gpt import GPT
from model.self_attention import SelfAttention

HeadIndex = tuple[int, int]  # layer, head in the layer; both from 0


def head_name(head: HeadIndex) -> str:
    return "L{}H{}".format(*head)


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


def scales_of(model: GPT) -> list[float]:
    """Return the scale s of every head, see `QueryKeyNorm`, or nothing if scores are not s cos(q, k)."""
    if model.config.score != "scaled_dot":
        return []
    norms = [block.attention.qk_norm for block in model.blocks]
    return [scale for norm in norms if norm for scale in norm.scales(model.lm_head.weight).tolist()]


def character_embeddings(model: GPT) -> Tensor:
    """Return the embeddings (V, C) of the vocabulary, float64, on the CPU."""
    return model.token_embedding.weight.detach().double().cpu()
