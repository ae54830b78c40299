"""Files: write each completely or not at all, and lock folders."""

import contextlib
import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock, Timeout, lock_descriptor

from cli.errors import UserError

SHORT_WAIT_S = 0.5  # for a lock: `is_locked` holds one for an instant


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
        with contextlib.suppress(OSError):  # this flushes the rename; some systems cannot
            descriptor = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
    finally:
        partial.unlink(missing_ok=True)


def replace_text(path: Path, text: str) -> None:
    """Write the text in UTF-8 as `replacing` does."""
    with replacing(path) as file:
        file.write(text.encode(errors="backslashreplace"))  # a name may not be UTF-8


def remove_partial_files(folder: Path) -> None:
    """Remove what a process left that was killed in `replacing`. Call it only if no other process writes there."""
    for path in folder.glob("*.part"):
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def exclusive(folder: Path, work: str, *, waits: bool = False) -> Iterator[None]:
    """Let one process at a time do some work in a folder; a process that dies releases its lock.

    If another process does it, raise UserError or, with `waits`, print a message and wait. If the file system has no
    locks, print a warning and go on.
    """
    path = folder / "lock"
    folder.mkdir(parents=True, exist_ok=True)
    path.touch()  # an error here is not one of locks
    lock = FileLock(path, fallback_to_soft=False)  # a soft lock would outlive its process
    try:
        lock.acquire(timeout=SHORT_WAIT_S)
    except Timeout:
        if not waits:
            raise UserError(f"{folder}: another process {work}; wait for it or stop it") from None
        advice = f"if none is, delete {path} and start again"
        print(f"Waiting for {folder}: another process {work}; {advice}", file=sys.stderr, flush=True)
        lock.acquire()
    except OSError as error:
        advice = f"its file system has no locks ({error.strerror}), so let only one process use it"
        print(f"warning: {folder}: {advice}", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        lock.release()


def is_locked(folder: Path) -> bool:
    """Return whether a process has locked the folder. This needs no write permission."""
    with contextlib.suppress(OSError), (folder / "lock").open("rb") as file:  # no such file, or no locks
        return not lock_descriptor(file.fileno(), blocking=False)
    return False
