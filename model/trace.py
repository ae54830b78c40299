"""What a GPT's heads look at."""

from torch import Tensor

from model.gpt import GPT


def attention_weights(model: GPT, ids: Tensor) -> list[Tensor]:
    """Return the attention weights of every layer, (B, H, T, T) each, while the model reads ids (B, T)."""
    weights: list[Tensor] = []
    hooks = [
        block.attention.register_forward_pre_hook(lambda layer, inputs: weights.append(layer.weights(*inputs[:3])))
        for block in model.blocks
    ]
    try:
        model(ids)
    finally:
        for hook in hooks:
            hook.remove()
    return weights
