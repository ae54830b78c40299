"""Character ids in a file, read piece by piece: a text may be larger than memory."""

import io
import os
import weakref
from pathlib import Path

import numpy as np

from cli.errors import UserError


class DamagedTextError(UserError):
    """The file of an encoded text has changed while it is in use."""


class EncodedText:
    """The ids of a text, or of a part of it. A slice reads its ids from the file into an array (n,).

    n_values: the number of different ids. A slice raises DamagedTextError if the file is shorter than it was, or
    contains an id that is not below n_values. If the file were memory-mapped, a shorter one would end the process.
    """

    def __init__(self, path: Path, dtype: np.dtype, *, n_values: int, n_characters: int):
        self.path, self.dtype, self.n_values = path, np.dtype(dtype), n_values
        self._file = io.FileIO(os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0)), closefd=False)
        weakref.finalize(self._file, os.close, self._file.fileno())  # when the last part of the text is gone
        self._start, self._stop = 0, n_characters
        self._numbers: np.ndarray | None = None

    def __len__(self) -> int:
        return self._stop - self._start

    def part(self, start: int, stop: int) -> "EncodedText":
        """Return the text from start to stop without reading it."""
        part = object.__new__(EncodedText)
        part.__dict__ |= self.__dict__
        part._start, part._stop = self._start + start, self._start + stop
        return part

    def renumbered(self, numbers: np.ndarray) -> "EncodedText":
        """Return the text with the ids numbers[i] in place of i."""
        text = self.part(0, len(self))
        text._numbers = numbers
        return text

    def __getitem__(self, piece: slice) -> np.ndarray:
        start, stop, _ = piece.indices(len(self))
        ids = self._read(self._start + start, max(0, stop - start))
        if ids.size and ids.max() >= self.n_values:
            raise DamagedTextError(f"{self.path}: is damaged (train.py --verify encodes the text again)")
        return ids if self._numbers is None else self._numbers[ids]

    def _read(self, start: int, n: int) -> np.ndarray:
        ids = np.empty(n, dtype=self.dtype)
        unread = memoryview(ids.data).cast("B")
        self._file.seek(start * self.dtype.itemsize)
        while unread:
            n_read = self._file.readinto(unread)
            if not n_read:
                raise DamagedTextError(
                    f"{self.path}: has become shorter (the next start of train.py encodes the text again)"
                )
            unread = unread[n_read:]
        return ids
