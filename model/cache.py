"""Keys and values of the positions already seen, so that the next character costs one position and not all of them."""

import torch
from torch import Tensor

from model.config import ModelConfig


class LayerCache:
    """One layer's keys and values, (B, K, block_size, D) each for K heads, filled for the first `length` positions."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device):
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)
        self.length = 0

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Writes k, v (B, K, T, D) behind what is there; returns views (B, K, length, D) of all so far."""
        start, T = self.length, k.size(2)
        self.keys.narrow(2, start, T).copy_(k)
        self.values.narrow(2, start, T).copy_(v)
        self.length = start + T
        return self.keys.narrow(2, 0, self.length), self.values.narrow(2, 0, self.length)

    def write(self, k: Tensor, v: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
        """Writes k, v (B, K, 1, D) at a position (1,) that the device knows; returns all block_size places.

        `length` does not follow by itself: see `KVCache.advance`.
        """
        return self.keys.index_copy_(2, position, k), self.values.index_copy_(2, position, v)


class KVCache:
    """The caches of all layers for B sequences in step, owned by whoever generates."""

    def __init__(
        self,
        config: ModelConfig,
        batch_size: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ):
        self.batch_size = batch_size
        layers = map(config.layer, range(config.n_layer))
        shapes = [(batch_size, layer.kv_heads, layer.block_size, layer.size_per_head) for layer in layers]
        self.layers = [LayerCache(shape, dtype, torch.device(device)) for shape in shapes]

    @property
    def length(self) -> int:
        return self.layers[0].length

    def advance(self) -> None:
        """Counts a position that was written at a place that only the device knows."""
        for layer in self.layers:
            layer.length += 1

    def clear(self) -> None:
        for layer in self.layers:
            layer.length = 0
