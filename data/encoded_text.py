"""Character ids in a file, read piece by piece: a text may be larger than memory."""

import os
from pathlib import Path
from typing import BinaryIO

import numpy as np

from cli.errors import UserError


class EncodedText:
    """The ids of a text, or of a part of it. A slice of at most 2 GB reads its ids from the file into an array (n,).

    Each read names its position, so threads and forked processes may share the open file. A file that has become
    shorter is an error; if it were memory-mapped, it would be a signal that ends the process.
    """

    def __init__(self, file: BinaryIO, dtype: np.dtype, *, first_byte: int, length: int):
        self.file, self.dtype, self.first_byte, self.length = file, dtype, first_byte, length

    def __len__(self) -> int:
        return self.length

    def part(self, start: int, stop: int) -> "EncodedText":
        """Return the text from start to stop without reading it."""
        first_byte = self.first_byte + start * self.dtype.itemsize
        return EncodedText(self.file, self.dtype, first_byte=first_byte, length=stop - start)

    def __getitem__(self, piece: slice) -> np.ndarray:
        start, stop, _ = piece.indices(self.length)
        size, n = self.dtype.itemsize, max(0, stop - start)
        content = read_at(self.file, n * size, self.first_byte + start * size)
        if len(content) < n * size:
            raise UserError(f"{Path(self.file.name)}: has become shorter; start again, and the text is encoded again")
        return np.frombuffer(content, self.dtype)


def read_at(file: BinaryIO, n: int, position: int) -> bytes:
    """Return n bytes from a position of an open file, without moving the place that all its readers share."""
    if hasattr(os, "pread"):
        return os.pread(file.fileno(), n, position)
    with Path(file.name).open("rb") as own:  # Windows, where an open file cannot be replaced by another
        own.seek(position)
        return own.read(n)
