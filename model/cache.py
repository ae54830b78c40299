"""The key-value cache: it stores keys and values, so that a new character costs one position instead of all."""

from typing import Any

import torch
from torch import Tensor

from model.config import LayerShape, ModelConfig


class Inputs:
    """Stores inputs of a layer (B, size, ...), after zeros for the n_before positions before the first."""

    def __init__(self, n_before: int, batch_size: int, size: int, *channels: int, **options: Any):
        self.n_before = n_before
        self.stored = torch.zeros(batch_size, n_before + size, *channels, **options)

    def update(self, x: Tensor, index: slice) -> Tensor:
        """Write x (B, T, ...) at these positions and return (B, n_before + T, ...): x after the inputs before it."""
        self.stored[:, index.start + self.n_before : index.stop + self.n_before] = x
        return self.stored[: len(x), index.start : index.stop + self.n_before]


class LayerCache:
    """One layer's keys and values, (B, K, size, D) each for K key heads, and the inputs of its convolution.

    options: the dtype and device.
    """

    def __init__(self, config: ModelConfig, layer: LayerShape, batch_size: int, **options: Any):
        size, width = config.block_size, config.conv_width
        shape = (batch_size, layer.n_kv_head, size, layer.head_size)
        self.keys, self.values = torch.zeros(shape, **options), torch.zeros(shape, **options)
        self.inputs = Inputs(width - 1, batch_size, size, config.n_embd if width > 1 else 0, **options)

    def update(self, k: Tensor, v: Tensor, index: slice) -> tuple[Tensor, Tensor]:
        """Write k, v (B, K, T, D) at these positions and return those up to the last, (B, K, S, D) each."""
        self.keys[:, :, index], self.values[:, :, index] = k, v
        return self.keys[: len(k), :, : index.stop], self.values[: len(k), :, : index.stop]


class KVCache:
    """The caches of all layers, and the characters, of B sequences of equal length, for inference.

    Pass it to `GPT.forward`, which continues the sequences, or begins all of them with the one that it is given. dtype,
    device: those of the model. If its weights change, set the length to 0.
    """

    def __init__(self, config: ModelConfig, batch_size: int, **options: Any):
        self.layers = [LayerCache(config, layer, batch_size, **options) for layer in config.layers]
        self.symbols = Inputs(config.n_before, batch_size, config.block_size, **options | {"dtype": torch.long})
        self.length = 0  # how many positions were read
