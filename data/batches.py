"""Training batches as a pure function of (seed, number), and the windows of an evaluation."""

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

from data.encoded_text import EncodedText

Ids = np.ndarray | EncodedText
BYTES_ON_DEVICE = 1 << 30  # texts up to this size, at 4 bytes per character, are stored on the GPU
BATCHES_AHEAD = 64  # computing the start positions of 64 takes little longer than of one
ROUNDS = 6  # of the Feistel network; 4 rounds suffice with ideal round functions (Luby and Rackoff, 1988)


class TrainingBatches:
    """Random access to the training batches: each is a pure function of the seed and the number of its first window.

    Each epoch cuts the text into adjacent windows at a new offset and visits them in a new order. The first and the
    last window shift inwards to fit, so every epoch covers every character. Batches share no state: a resumed run
    restores nothing, and memory does not grow with the corpus. If the text is small enough, it is stored on the GPU,
    and only the start positions of the windows are sent there.

    part: the windows of a batch that are wanted, for a process that computes a part of it.
    """

    def __init__(
        self,
        ids: Ids,
        *,
        block_size: int,
        batch_size: int,
        seed: int,
        device: torch.device | str = "cpu",
        part: slice = slice(None),
    ):
        assert len(ids) > block_size, (len(ids), block_size)  # see Corpus.split
        self.device, self.ids_on_device = torch.device(device), None
        if self.device.type == "cuda" and 4 * len(ids) <= BYTES_ON_DEVICE:
            self.ids_on_device = torch.from_numpy(ids[:].astype(np.int32)).to(self.device)
            self.offsets = torch.arange(block_size + 1, device=self.device)
        self.ids, self.block_size, self.batch_size, self.seed, self.part = ids, block_size, batch_size, seed, part
        self.last_start = len(ids) - 1 - block_size
        self.first_known, self.known_starts = 0, np.empty(0, dtype=np.int64)  # the most recent ones
        self.windows_per_epoch = 1 + -(-(len(ids) - 1) // block_size)

    def at(self, window: int) -> tuple[Tensor, Tensor]:
        """Return inputs and targets of the part of the batch that begins with this window of the run.

        Each is (windows, block_size) int64, on the device.
        """
        starts = self.starts(window)[self.part]
        if self.ids_on_device is None:
            windows = to_device(torch.from_numpy(_read_windows(self.ids, starts, self.block_size)), self.device)
        else:
            starts_on_device = to_device(torch.from_numpy(starts), self.device)
            windows = self.ids_on_device[starts_on_device[:, None] + self.offsets].long()
        return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()

    def starts(self, first: int) -> np.ndarray:
        """Return the positions in the text at which the windows of a batch start, (batch_size,) int64.

        first: the number of the batch's first window in the run.
        """
        at = first - self.first_known
        if not 0 <= at <= len(self.known_starts) - self.batch_size:
            self.known_starts = self._starts(first + np.arange(BATCHES_AHEAD * self.batch_size))
            self.first_known, at = first, 0
        return self.known_starts[at : at + self.batch_size]

    def _starts(self, windows: np.ndarray) -> np.ndarray:
        epoch, place = np.divmod(windows, self.windows_per_epoch)
        starts = np.empty(len(windows), dtype=np.int64)
        for e in np.unique(epoch):
            *keys, offset = np.random.SeedSequence([self.seed, int(e)]).generate_state(ROUNDS + 1, np.uint64)
            window = permute(place[epoch == e], self.windows_per_epoch, keys)
            starts[epoch == e] = window * self.block_size - int(offset % np.uint64(self.block_size))
        return starts.clip(0, self.last_start)


def evaluation_windows(
    ids: Ids, *, block_size: int, batch_size: int, n_characters: int | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield inputs and targets (B, T) int64 that score every character of ids except the first once, in order.

    Every window holds block_size characters; the last one holds the remainder. n_characters: score only as many whole
    windows as contain this many characters, spread evenly.
    """
    n_full, n_left = divmod(len(ids) - 1, block_size)
    wanted = len(ids) - 1 if n_characters is None else n_characters
    n_windows = min(n_full, -(-wanted // block_size))
    batches = [range(first, min(first + batch_size, n_windows)) for first in range(0, n_windows, batch_size)]
    if n_left and wanted > n_full * block_size:
        batches.append(range(n_windows, n_windows + 1))  # a shorter window; the only one of ids without a whole one
    for numbers in batches:
        starts = [i * n_full // max(n_windows, 1) * block_size for i in numbers]
        windows = torch.from_numpy(_read_windows(ids, starts, block_size))
        yield windows[:, :-1].contiguous(), windows[:, 1:].contiguous()


def to_device(x: Tensor, device: torch.device) -> Tensor:
    """Return the tensor on the device, without waiting for a GPU."""
    return x.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else x.to(device)


def _read_windows(ids: Ids, starts: Iterable[int], block_size: int) -> np.ndarray:
    """Return windows with one more character for the last target, (windows, block_size + 1) int64."""
    return np.stack([ids[start : start + block_size + 1] for start in starts]).astype(np.int64)


def permute(index: np.ndarray, n: int, keys: list[np.uint64]) -> np.ndarray:
    """Map each index through a pseudo-random permutation of 0 to n - 1. The keys, one per round, select it.

    The method is a Feistel network over the smallest even number of bits that holds n - 1. It is applied again to
    results of n or more (cycle walking: Black and Rogaway, 2002). Memory does not grow with n.
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
    """Spread every bit over all 64 bits (the finaliser of SplitMix64: Steele, Lea and Flood, 2014)."""
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)
