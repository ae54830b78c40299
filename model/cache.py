"""Keys and values of earlier positions, so that a new character costs one position and not all of them."""

import torch
from torch import Tensor

from model.config import ModelConfig
from model.positions import Places


class LayerCache:
    """One layer's keys and values, (B, K, block_size, D) each for K key heads."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device):
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)

    def update(self, k: Tensor, v: Tensor, index: slice | Tensor) -> tuple[Tensor, Tensor]:
        """Write k, v (B, K, T, D) at positions `index`, see `Places`, and return all that attention can reach.

        That is (B, K, S, D) each: for a slice, views of the positions up to its end; for a tensor, the whole cache.
        """
        if isinstance(index, slice):
            T, end = k.size(2), index.stop
            self.keys.narrow(2, end - T, T).copy_(k)
            self.values.narrow(2, end - T, T).copy_(v)
            return self.keys.narrow(2, 0, end), self.values.narrow(2, 0, end)
        return self.keys.index_copy_(2, index, k), self.values.index_copy_(2, index, v)


class KVCache:
    """The caches of all layers for B sequences in step. The caller owns it and passes it to `GPT.forward`."""

    def __init__(
        self,
        config: ModelConfig,
        batch_size: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ):
        self.block_size, self.length = config.block_size, 0
        shapes = [(batch_size, layer.n_kv_head, config.block_size, layer.head_size) for layer in config.layers]
        self.layers = [LayerCache(shape, dtype, torch.device(device)) for shape in shapes]

    def take(self, T: int) -> Places:
        """Return the next T positions, which the cache holds from now on.

        Raises ValueError if fewer than T of the block_size positions are left.
        """
        start, end = self.length, self.length + T
        if end > self.block_size:
            raise ValueError(f"{end} positions do not fit into model.block_size={self.block_size}")
        self.length = end
        return Places(slice(start, end))

    def clear(self) -> None:
        self.length = 0


class StaticKVCache(KVCache):
    """A cache whose length is a tensor on the device, and whose shapes never change.

    Every step does the same work, whatever its position, so a CUDA graph can replay it: attention reads all block_size
    places through a mask. The caller makes sure that no more than block_size positions are taken.
    """

    def __init__(self, config: ModelConfig, batch_size: int, **options):
        super().__init__(config, batch_size, **options)
        device = self.layers[0].keys.device
        self.position = torch.zeros(1, dtype=torch.long, device=device)
        self.places = torch.arange(config.block_size, device=device)

    def take(self, T: int) -> Places:
        index = self.position + self.places[:T]  # (T,)
        self.position += T
        return Places(index, visible=self.places <= index[:, None])

    def clear(self) -> None:
        self.position.zero_()
