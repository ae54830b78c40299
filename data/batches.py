"""Training batches that follow from (seed, number) alone, and the windows of an evaluation."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

BYTES_ON_DEVICE = 1 << 30  # the longest text, at 4 bytes a character, that is kept on a GPU
ROUNDS = 6  # of the Feistel network; 4 make a strong permutation of good round functions (Luby and Rackoff, 1988)


class TrainingBatches:
    """Windows of block_size characters, each with the characters that follow: batch n is a pure function of (seed, n).

    An epoch cuts the text into neighbouring windows at an offset of its own, and visits them in an order of its own, so
    that each epoch covers every character (the windows at both ends are moved inwards to fit). Nothing is kept between
    batches: a resumed run has nothing to restore, and memory does not grow with the corpus. A GPU holds the text itself
    where that is small enough, and is told only where the windows start.
    """

    def __init__(
        self, ids: np.ndarray, *, block_size: int, batch_size: int, seed: int, device: torch.device | str = "cpu"
    ):
        if len(ids) <= block_size:
            raise ValueError(f"{len(ids)} characters hold no window of {block_size} and the character after it")
        self.device, self.ids_on_device = torch.device(device), None
        if self.device.type == "cuda" and 4 * len(ids) <= BYTES_ON_DEVICE:
            self.ids_on_device = torch.from_numpy(ids.astype(np.int32)).to(self.device)
        self.ids, self.block_size, self.batch_size, self.seed = ids, block_size, batch_size, seed
        self.last_start = len(ids) - 1 - block_size
        self.windows_per_epoch = 1 + -(-(len(ids) - 1) // block_size)

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets of batch `number`, each (batch_size, block_size), int64, on the device."""
        starts = self.starts(number)[:, None]
        if self.ids_on_device is None:
            windows = self._move(self.ids[starts + np.arange(self.block_size + 1)].astype(np.int64))
        else:
            places = self._move(starts) + torch.arange(self.block_size + 1, device=self.device)
            windows = self.ids_on_device[places].long()
        return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()

    def _move(self, array: np.ndarray) -> Tensor:
        """An array on the device; a GPU's processor does not wait for it to arrive there."""
        tensor = torch.from_numpy(array)
        if self.device.type == "cuda":
            return tensor.pin_memory().to(self.device, non_blocking=True)
        return tensor.to(self.device)

    def starts(self, number: int) -> np.ndarray:
        """Where the windows of batch `number` start in the text, (batch_size,)."""
        epoch, place = np.divmod(number * self.batch_size + np.arange(self.batch_size), self.windows_per_epoch)
        starts = np.empty(self.batch_size, dtype=np.int64)
        for e in np.unique(epoch):
            *keys, offset = np.random.SeedSequence([self.seed, int(e)]).generate_state(ROUNDS + 1, np.uint64)
            window = permute(place[epoch == e], self.windows_per_epoch, keys)
            starts[epoch == e] = window * self.block_size - int(offset % np.uint64(self.block_size))
        return starts.clip(0, self.last_start)


def evaluation_windows(ids: np.ndarray, *, block_size: int, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Inputs and targets (B, T), int64, that score every character of ids but the first exactly once, in order.

    All windows hold block_size characters but the last, which is what remains.
    """
    n_full = (len(ids) - 1) // block_size
    for first in range(0, n_full, batch_size):
        n = min(batch_size, n_full - first)
        span = ids[first * block_size : (first + n) * block_size + 1].astype(np.int64)
        yield torch.from_numpy(span[:-1]).view(n, block_size), torch.from_numpy(span[1:]).view(n, block_size)
    rest = ids[n_full * block_size :].astype(np.int64)
    if len(rest) > 1:
        yield torch.from_numpy(rest[None, :-1]), torch.from_numpy(rest[None, 1:])


def permute(index: np.ndarray, n: int, keys: list[np.uint64]) -> np.ndarray:
    """Where a pseudo-random permutation of 0 to n - 1, chosen by the keys, takes each index; one key a round.

    A Feistel network over the smallest even number of bits that holds n - 1, applied again wherever it leaves the range
    (cycle walking: Black and Rogaway, 2002), so that no permutation is ever held in memory.
    """
    half = np.uint64(max(1, -(-(n - 1).bit_length() // 2)))
    mask = np.uint64((1 << int(half)) - 1)
    result = index.astype(np.uint64)
    outside = np.ones(len(result), dtype=bool)
    while outside.any():
        left, right = result[outside] >> half, result[outside] & mask
        for key in keys:
            left, right = right, left ^ (_mix(right + key) & mask)
        result[outside] = left << half | right
        outside = result >= n
    return result.astype(np.int64)


def _mix(x: np.ndarray) -> np.ndarray:
    """Spreads every bit over all 64 (the finalising step of SplitMix64: Steele, Lea and Flood, 2014)."""
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)
