"""The key-value cache: it stores keys and values, so that a new character costs one position instead of all."""

from typing import Any

import torch
from torch import Tensor

from model.config import LayerShape, ModelConfig


class Inputs:
    """Stores a layer's inputs (B, size, ...), after zeros for the n_before positions before the first."""

    def __init__(self, n_before: int, batch_size: int, size: int, *channels: int, **options: Any):
        self.n_before = n_before
        self.stored = torch.zeros(batch_size, n_before + size, *channels, **options)

    def update(self, x: Tensor, index: slice | Tensor) -> Tensor:
        """Write x (B, T, ...) at positions `index` (see `Places`); return (B, n_before + T, ...), with those before."""
        if isinstance(index, slice):
            self.stored[:, index.start + self.n_before : index.stop + self.n_before] = x
            return self.stored[:, index.start : index.stop + self.n_before]
        self.stored.index_copy_(1, index + self.n_before, x.to(self.stored.dtype))
        rows = index[0] + torch.arange(self.n_before + len(index), device=x.device)  # (n_before + T,)
        return self.stored.index_select(1, rows)


class LayerCache:
    """One layer's keys and values, (B, K, size, D) each for K key heads, and the inputs of its convolution.

    options: the dtype and device.
    """

    def __init__(self, config: ModelConfig, layer: LayerShape, batch_size: int, **options: Any):
        size, width = config.block_size, config.conv_width
        shape = (batch_size, layer.n_kv_head, size, layer.head_size)
        self.keys, self.values = torch.zeros(shape, **options), torch.zeros(shape, **options)
        self.inputs = Inputs(width - 1, batch_size, size, config.n_embd if width > 1 else 0, **options)

    def update(self, k: Tensor, v: Tensor, index: slice | Tensor) -> tuple[Tensor, Tensor]:
        """Write k, v (B, K, T, D) at positions `index` (see `Places`) and return the keys and values to attend to.

        Both are (B, K, S, D): for a slice, views of the positions up to its end; for a tensor, the whole cache.
        """
        if isinstance(index, slice):
            self.keys[:, :, index], self.values[:, :, index] = k, v
            return self.keys[:, :, : index.stop], self.values[:, :, : index.stop]
        k, v = k.to(self.keys.dtype), v.to(self.values.dtype)
        return self.keys.index_copy_(2, index, k), self.values.index_copy_(2, index, v)


class KVCache:
    """The caches of all layers, and the ids, of B sequences of equal length, for inference. Pass it to `GPT.forward`.

    dtype, device: those of the model. If its weights change, `clear` the cache.

    static: every step does the same work, whatever its position, so that a CUDA graph can replay it: the length is a
    tensor (1,) on the device, and attention reads the whole cache through a mask. This takes 1.4 times as long on a
    CPU. The caller must not exceed block_size.
    """

    def __init__(
        self,
        config: ModelConfig,
        batch_size: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        static: bool = False,
    ):
        size = config.block_size
        self.layers = [LayerCache(config, layer, batch_size, dtype=dtype, device=device) for layer in config.layers]
        self.recent = Inputs(config.n_before, batch_size, size, dtype=torch.long, device=device)
        self.every_place = torch.arange(size, device=device)
        self.length: int | Tensor = self.every_place.new_zeros(1) if static else 0  # how many positions were read

    def places(self, T: int) -> tuple[slice | Tensor, Tensor | None]:
        """Return `index` and `visible` of the next T positions; see `Places`.

        Raises ValueError if fewer are left, unless the cache is static.
        """
        if isinstance(self.length, Tensor):
            index = self.length + self.every_place[:T]
            return index, self.every_place <= index[:, None]  # (T,), (T, size)
        end = self.length + T
        if end > len(self.every_place):
            raise ValueError(f"{end} positions do not fit into model.block_size={len(self.every_place)}")
        return slice(self.length, end), None

    def clear(self) -> None:
        self.length -= self.length  # in place if it is a tensor, which a CUDA graph reads
