"""Training batches as a pure function of (seed, number), and the windows of an evaluation."""

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

Ids = np.ndarray  # of characters, (T,)
BYTES_ON_DEVICE = 1 << 30  # texts up to this size, at 4 bytes per character, are stored on the GPU


class TrainingBatches:
    """Random access to the training batches: each is a pure function of the seed and the number of its first window.

    Each epoch cuts the text into adjacent windows at a new offset and visits them in a new order. The first and the
    last window shift inwards to fit, so every epoch covers every character. Batches share no state, so a resumed run
    restores nothing. The order of an epoch takes 8 bytes of memory for each window. If the text is small enough, it is
    stored on the GPU, and only the start positions of the windows are sent there.
    """

    def __init__(
        self,
        ids: Ids,
        *,
        block_size: int,
        batch_size: int,
        seed: int,
        device: torch.device | str = "cpu",
    ):
        assert len(ids) > block_size, (len(ids), block_size)  # see Corpus.split
        self.device, self.ids_on_device = torch.device(device), None
        if self.device.type == "cuda" and 4 * len(ids) <= BYTES_ON_DEVICE:
            self.ids_on_device = torch.from_numpy(ids.astype(np.int32)).to(self.device)
            self.offsets = torch.arange(block_size + 1, device=self.device)
        self.ids, self.block_size, self.batch_size, self.seed = ids, block_size, batch_size, seed
        self.last_start = len(ids) - 1 - block_size
        self.windows_per_epoch = 1 + -(-(len(ids) - 1) // block_size)
        self.newest: tuple[int, np.ndarray] = (-1, np.empty(0))  # the newest epoch, and the starts of its windows

    def at(self, window: int) -> tuple[Tensor, Tensor]:
        """Return inputs and targets of the batch that begins with this window of the run.

        Each is (batch_size, block_size) int64, on the device.
        """
        starts = self.starts(window)
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
        epochs, places = np.divmod(first + np.arange(self.batch_size), self.windows_per_epoch)
        return np.concatenate([self._starts_of(epoch)[places[epochs == epoch]] for epoch in np.unique(epochs).tolist()])

    def _starts_of(self, epoch: int) -> np.ndarray:
        """Return the start positions of an epoch's windows in their order, and keep them until another epoch's."""
        kept, starts = self.newest
        if kept != epoch:
            rng = np.random.default_rng([self.seed, epoch])
            starts = rng.permutation(self.windows_per_epoch)
            starts *= self.block_size  # in place: there may be many windows
            starts -= rng.integers(self.block_size)
            starts.clip(0, self.last_start, out=starts)
            self.newest = epoch, starts  # at once, for threads
        return starts


def evaluation_windows(
    ids: Ids, *, block_size: int, batch_size: int, n_characters: int | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield inputs and targets (B, T) int64 that score every character of ids except the first once, in order.

    Every window holds block_size characters; the last one holds the remainder. n_characters: score only as many whole
    windows as contain this many characters, spread evenly.
    """
    n_targets = max(0, len(ids) - 1)
    n_full, n_left = divmod(n_targets, block_size)
    wanted = n_targets if n_characters is None else n_characters
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
