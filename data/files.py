"""Files that are either wholly there or not there at all."""

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write that takes the path's place once it is whole and on the disk, and leaves no trace if that fails.

    Until then it lies beside the path under a name that ends in .part. Raises OSError where it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")  # machines may share the folder
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        _flush_folder(path.parent)
    finally:
        partial.unlink(missing_ok=True)


def _flush_folder(folder: Path) -> None:
    """Puts a rename on the disk; only POSIX systems let a folder be flushed."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
