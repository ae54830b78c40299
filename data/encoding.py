"""Text files to character ids, chunk by chunk: a text may be larger than memory."""

import codecs
import errno
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tqdm import tqdm

from data.files import replacing
from data.vocabulary import UnknownCharacterError, Vocabulary, code_points

CHUNK_BYTES = 1 << 16  # small enough that a chunk and all arrays made from it stay in the CPU's cache
UNICODE = 0x110000
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def scan(files: list[Path], encoding: str) -> tuple[str, str]:
    """Return the digest and the set of characters of the files, reading them once."""
    hashes, seen = FileHashes(), np.zeros(UNICODE, dtype=bool)
    for path, content, text in _read(files, encoding, "Reading"):
        hashes.update(path, content)
        seen[code_points(text)] = True
    return hashes.digest(), "".join(map(chr, np.flatnonzero(seen)))


def encode(files: list[Path], encoding: str, vocabulary: Vocabulary, target: Path, digest: str) -> tuple[int, str]:
    """Write the ids of the files to target; return their number and the SHA-256 of target.

    Raises ValueError if the files no longer have the digest, OSError if target cannot be written.
    """
    hashes, n_characters, ids_hash = FileHashes(), 0, hashlib.sha256()
    most_bytes = vocabulary.dtype.itemsize * sum(path.stat().st_size for path in files)
    changed = ValueError(f"{files[0]}: the text changed while it was being read; start again")
    try:
        with replacing(target) as out:
            for path, content, text in _read(files, encoding, "Encoding"):
                hashes.update(path, content)
                try:
                    ids = vocabulary.encode(text)
                except UnknownCharacterError:
                    raise changed from None
                out.write(ids.data)
                ids_hash.update(ids.data)
                n_characters += len(text)
            if hashes.digest() != digest:
                raise changed
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        reason = f"the encoded text needs up to {most_bytes:,} bytes ({error.strerror}); free some space"
        raise OSError(f"{target}: {reason}") from None
    with target.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # verify the file on disk, not its copy in memory
    if file_digest(target) != ids_hash.hexdigest():
        target.unlink()
        raise OSError(f"{target}: has another content than was written; check the disk")
    return n_characters, ids_hash.hexdigest()


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class FileHashes:
    """SHA-256 of one file, or of the digests of several files, so that the boundaries between files matter."""

    def __init__(self) -> None:
        self._of_files: dict[Path, hashlib._Hash] = {}

    def update(self, path: Path, content: bytes) -> None:
        self._of_files.setdefault(path, hashlib.sha256()).update(content)

    def digest(self) -> str:
        digests = [sha256.hexdigest() for sha256 in self._of_files.values()]
        return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def _read(files: list[Path], encoding: str, doing: str) -> Iterator[tuple[Path, bytes, str]]:
    """Yield (path, bytes, text) of the files in order, chunk by chunk: a corpus may be larger than memory."""
    total = sum(path.stat().st_size for path in files)
    with tqdm(total=total, unit="B", unit_scale=True, desc=doing, disable=None, delay=1, leave=False) as bar:
        for path in files:
            decoder = codecs.getincrementaldecoder(encoding)()
            with path.open("rb") as file:
                n_decoded = 0  # bytes decoded so far, without those still in the decoder's buffer
                while True:
                    content = file.read(CHUNK_BYTES)
                    n_buffered = len(decoder.getstate()[0])
                    try:
                        text = decoder.decode(content, final=not content)
                    except UnicodeDecodeError as error:
                        raise ValueError(
                            f"{path} is not {encoding}: byte {n_decoded + error.start:,} ({error.reason}); "
                            "convert the file or set data.encoding to its encoding, such as cp1252 or utf-16"
                        ) from None
                    except UnicodeError as error:  # UTF-16 or UTF-32 without a byte-order mark
                        advice = f"set data.encoding={encoding}-le or {encoding}-be"
                        raise ValueError(f"{path} cannot be read as {encoding} ({error}); {advice}") from None
                    n_decoded += n_buffered + len(content) - len(decoder.getstate()[0])
                    yield path, content, text
                    if not content:
                        break
                    bar.update(len(content))
