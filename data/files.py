"""Atomic writing: a file appears complete or not at all."""

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def replacing(path: Path, *, keep: Path | None = None) -> Iterator[BinaryIO]:
    """Open a file for writing that replaces `path` once it is complete and flushed to disk.

    Until then, the content is in a file beside it whose name ends in .part. After an error, that file is deleted and
    `path` is unchanged. keep: the new name of the replaced file. Raises OSError if the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")  # several machines may share the folder
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if keep and path.exists():
            path.replace(keep)
        partial.replace(path)
        _flush_folder(path.parent)
    except OSError as error:
        if error.filename is None:  # as for a full disk
            error.filename = str(path)
        raise
    finally:
        partial.unlink(missing_ok=True)


def replace_text(path: Path, text: str) -> None:
    """Write the text in UTF-8 as `replacing` does."""
    with replacing(path) as file:
        file.write(text.encode())


def _flush_folder(folder: Path) -> None:
    """Flush a rename to disk. Only POSIX systems can flush a folder."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
