"""The key-value cache: it stores keys and values, so that a new character costs one position instead of all."""

import torch
from torch import Tensor

from model.config import LayerShape, ModelConfig
from model.positions import Places


class LayerCache:
    """One layer's keys and values, (B, K, block_size, D) each for K key heads, and the inputs of its convolution.

    inputs: (B, W - 1 + block_size, C), starting with the zeros before the text; C is 0 without a convolution.
    """

    def __init__(
        self, config: ModelConfig, layer: LayerShape, batch_size: int, dtype: torch.dtype, device: torch.device | str
    ):
        shape = (batch_size, layer.n_kv_head, config.block_size, layer.head_size)
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)
        self.n_before = config.conv_width - 1
        channels = config.n_embd if self.n_before else 0
        self.inputs = torch.zeros(batch_size, self.n_before + config.block_size, channels, dtype=dtype, device=device)

    def update(self, k: Tensor, v: Tensor, index: slice | Tensor) -> tuple[Tensor, Tensor]:
        """Write k, v (B, K, T, D) at positions `index` (see `Places`) and return the keys and values to attend to.

        Both are (B, K, S, D): for a slice, views of the positions up to its end; for a tensor, the whole cache.
        """
        if isinstance(index, slice):
            self.keys[:, :, index], self.values[:, :, index] = k, v
            return self.keys[:, :, : index.stop], self.values[:, :, : index.stop]
        k, v = k.to(self.keys.dtype), v.to(self.values.dtype)
        return self.keys.index_copy_(2, index, k), self.values.index_copy_(2, index, v)

    def update_inputs(self, x: Tensor, index: slice | Tensor) -> Tensor:
        """Write inputs x (B, T, C) of the convolution; return them with the W - 1 before, (B, W - 1 + T, C)."""
        if isinstance(index, slice):
            self.inputs[:, index.start + self.n_before : index.stop + self.n_before] = x
            return self.inputs[:, index.start : index.stop + self.n_before]
        self.inputs.index_copy_(1, index + self.n_before, x.to(self.inputs.dtype))
        rows = index[0] + torch.arange(self.n_before + len(index), device=x.device)
        return self.inputs.index_select(1, rows)


class KVCache:
    """The caches of all layers for B sequences of equal length, for inference. Pass it to `GPT.forward`.

    dtype, device: those of the model.
    """

    def __init__(
        self,
        config: ModelConfig,
        batch_size: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ):
        self.layers = [LayerCache(config, layer, batch_size, dtype, device) for layer in config.layers]
        self.block_size = config.block_size
        self.length: int | Tensor = 0  # how many positions were read

    def places(self, T: int) -> Places:
        """Return the next T positions. Raises ValueError if fewer are left of the block_size positions."""
        end = self.length + T
        if end > self.block_size:
            raise ValueError(f"{end} positions do not fit into model.block_size={self.block_size}")
        return Places(slice(self.length, end))

    def advance(self, T: int) -> None:
        """Count T positions as read."""
        self.length += T

    def clear(self) -> None:
        self.length -= self.length  # in place if it is a tensor, which a CUDA graph reads


class StaticKVCache(KVCache):
    """A `KVCache` whose length is a tensor (1,) on the device, and whose shapes never change.

    Every step does the same work, whatever its position, so a CUDA graph can replay it: attention reads all block_size
    positions through a mask. The caller must not exceed block_size positions.
    """

    def __init__(self, config: ModelConfig, batch_size: int, *, dtype: torch.dtype, device: torch.device | str):
        super().__init__(config, batch_size, dtype=dtype, device=device)
        self.length = torch.zeros(1, dtype=torch.long, device=device)
        self.every_place = torch.arange(config.block_size, device=device)

    def places(self, T: int) -> Places:
        index = self.length + self.every_place[:T]  # (T,)
        return Places(index, visible=self.every_place <= index[:, None])  # (T, block_size)
