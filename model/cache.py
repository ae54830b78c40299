"""The key-value cache: it stores keys and values, so that a new character costs one position instead of all."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from model.config import LayerShape, ModelConfig
from model.positions import Places


class LayerCache:
    """One layer's keys and values, (B, K, size, D) each for K key heads, and the inputs of its convolution.

    inputs: (B, W - 1 + size, C), starting with the zeros before the text; C is 0 without a convolution.
    """

    def __init__(
        self,
        config: ModelConfig,
        layer: LayerShape,
        batch_size: int,
        size: int,
        dtype: torch.dtype,
        device: torch.device | str,
    ):
        shape = (batch_size, layer.n_kv_head, size, layer.head_size)
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)
        self.n_before = config.conv_width - 1
        channels = config.n_embd if self.n_before else 0
        self.inputs = torch.zeros(batch_size, self.n_before + size, channels, dtype=dtype, device=device)
        self.computed: dict[Callable, Any] = {}

    def once(self, compute: Callable, like: Tensor) -> Any:
        """Return compute(like), a function of weights, computed when it is first asked for."""
        if compute not in self.computed:
            self.computed[compute] = compute(like)
        return self.computed[compute]

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

    dtype, device: those of the model, whose weights must not change while it has a cache. size: how many positions fit,
    by default block_size.
    """

    def __init__(
        self,
        config: ModelConfig,
        batch_size: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        size: int | None = None,
    ):
        self.size = size or config.block_size
        self.layers = [LayerCache(config, layer, batch_size, self.size, dtype, device) for layer in config.layers]
        self.length: int | Tensor = 0  # how many positions were read

    def places(self, T: int) -> Places:
        """Return the next T positions. Raises ValueError if fewer are left."""
        end = self.length + T
        if end > self.size:
            raise ValueError(f"{end} positions do not fit into model.block_size={self.size}")
        return Places(slice(self.length, end))

    def clear(self) -> None:
        self.length -= self.length  # in place if it is a tensor, which a CUDA graph reads


class StaticKVCache(KVCache):
    """A `KVCache` whose length is a tensor (1,) on the device, and whose shapes never change.

    Every step does the same work, whatever its position, so a CUDA graph can replay it: attention reads all positions
    of the cache through a mask. The caller must not exceed its size.
    """

    length: Tensor

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.length = torch.zeros(1, dtype=torch.long, device=self.layers[0].keys.device)

    def places(self, T: int) -> Places:
        every_place = torch.arange(self.size, device=self.length.device)
        index = self.length + every_place[:T]  # (T,)
        return Places(index, visible=every_place <= index[:, None])  # (T, size)
