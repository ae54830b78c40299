"""Files: written completely or not at all, and by one process at a time."""

import contextlib
import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock, Timeout

SHORT_WAIT_S = 0.5


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
        if os.name == "posix":  # only these systems can flush a folder, and with it the rename
            descriptor = os.open(path.parent, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
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


def file_stat(path: Path) -> list:
    """Return the path, size, mtime and ctime of a file, which reveal a change."""
    stat = path.stat()
    return [str(path), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]


def remove_partial_files(folder: Path) -> None:
    """Remove what a process left that was killed in `replacing`. Call it only if no other process writes there."""
    for path in folder.glob("*.part"):
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def exclusive(folder: Path, reason: str) -> Iterator[None]:
    """Let one process at a time work in a folder. If this one must wait, print the reason.

    The lock of a dead process is released.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / "lock")
    try:
        held = lock.acquire(timeout=SHORT_WAIT_S)
    except Timeout:
        print(f"Waiting for {folder}: {reason}", file=sys.stderr, flush=True)
        held = lock.acquire()
    with held:
        yield
