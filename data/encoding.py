"""Text files to character ids, piece by piece: a text may be larger than memory."""

import codecs
import collections
import errno
import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
from tqdm import tqdm

from cli.errors import UserError
from data.compressed import SUFFIXES, open_text
from data.files import file_digest, replacing
from data.vocabulary import UnknownCharacterError, Vocabulary, code_points

CHUNK_BYTES = 1 << 16  # small enough that a chunk and all arrays made from it stay in the CPU's cache
CHUNKS_AT_ONCE = 16  # read, hashed and written
CONTAIN_ASCII = ("ascii", "utf-8", "iso8859-1", "cp1252")  # stateless, and an ASCII byte is its character
UNICODE = 0x110000
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def scan(files: list[Path], encoding: str) -> tuple[str, str]:
    """Return the digest and the set of characters of the files, reading them once."""
    seen, seen_ascii = np.zeros(UNICODE, dtype=bool), b""
    digests: list[str] = []
    for _, pieces in _read(files, encoding, digests, "Reading"):
        for piece in pieces:
            if isinstance(piece, str):
                seen[code_points(piece)] = True
            elif new := piece.translate(None, seen_ascii):
                seen_ascii += bytes(set(new))
    seen[list(seen_ascii)] = True
    return _digest_of_all(digests), "".join(map(chr, np.flatnonzero(seen)))


def encode(
    files: list[Path], encoding: str, vocabulary: Vocabulary, target: Path, digest: str
) -> tuple[list[int], str]:
    """Write the ids of the files to target. Return the number of characters from each file, and the SHA-256 of target.

    Raises UserError if the files no longer have the digest, or if target cannot be written.
    """
    file_characters, digests = [0] * len(files), list[str]()
    changed = UserError(f"{files[0]}: the text changed while it was being read; start again")
    try:
        with replacing(target) as out, BackgroundHash() as ids_hash:
            for number, pieces in _read(files, encoding, digests, "Encoding"):
                try:
                    encoded = [
                        vocabulary.encode(piece) if isinstance(piece, str) else vocabulary.encode_ascii(piece)
                        for piece in pieces
                    ]
                except UnknownCharacterError:
                    raise changed from None
                ids = np.concatenate(encoded)
                out.write(ids.data)
                ids_hash.update(ids.data)
                file_characters[number] += len(ids)
            if _digest_of_all(digests) != digest:
                raise changed
            ids_digest = ids_hash.hexdigest()
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        needed = "more space"
        if not any(path.suffix in SUFFIXES for path in files):
            needed = f"up to {vocabulary.dtype.itemsize * sum(path.stat().st_size for path in files):,} bytes"
        raise UserError(f"{target}: the encoded text needs {needed} ({error.strerror}); free some space") from None
    if hasattr(os, "posix_fadvise"):  # verify the file on disk, not its copy in memory
        with target.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if file_digest(target) != ids_digest:
        target.unlink()
        raise UserError(f"{target}: does not contain what was written to it; check the disk")
    return file_characters, ids_digest


class BackgroundHash:
    """A SHA-256 that a second thread computes: a third of the work of encoding a text is hashing."""

    WAITING = 8  # pieces, which limits memory

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self._thread = ThreadPoolExecutor(1)
        self._pieces: collections.deque[Future[None]] = collections.deque()

    def __enter__(self) -> "BackgroundHash":
        return self

    def __exit__(self, *_) -> None:
        self._thread.shutdown()

    def update(self, piece: bytes | memoryview) -> None:
        self._pieces.append(self._thread.submit(self._sha256.update, piece))
        if len(self._pieces) > self.WAITING:
            self._pieces.popleft().result()

    def hexdigest(self) -> str:
        while self._pieces:
            self._pieces.popleft().result()
        return self._sha256.hexdigest()


def _digest_of_all(digests: list[str]) -> str:
    """Return the digest of one file, or that of the digests of several, so that the boundaries between files matter."""
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def _read(files: list[Path], encoding: str, digests: list[str], doing: str) -> Iterator[tuple[int, list[str | bytes]]]:
    """Yield the number of a file and pieces of its text, in order; append each uncompressed file's SHA-256 to digests.

    Pieces in ASCII may be bytes, which are faster than text.
    """
    total = sum(path.stat().st_size for path in files)
    with tqdm(total=total, unit="B", unit_scale=True, desc=doing, disable=None, delay=1, leave=False) as bar:
        n_bytes_before = 0  # in earlier files, compressed
        for number, path in enumerate(files):
            decode = _PositionedDecoder(path, encoding)
            with open_text(path) as (read, file), BackgroundHash() as sha256:
                while content := read(CHUNKS_AT_ONCE * CHUNK_BYTES):
                    sha256.update(content)
                    starts = range(0, len(content), CHUNK_BYTES)
                    yield number, [decode(content[start : start + CHUNK_BYTES]) for start in starts]
                    bar.update(n_bytes_before + file.tell() - bar.n)
                yield number, [decode(b"", final=True)]
                n_bytes_before += file.tell()
                digests.append(sha256.hexdigest())


class _PositionedDecoder:
    """An incremental decoder whose errors name the file and the byte. It may return ASCII as it is."""

    def __init__(self, path: Path, encoding: str):
        self.path, self.encoding = path, encoding
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._contains_ascii = codecs.lookup(encoding).name in CONTAIN_ASCII
        self._n_decoded = 0  # bytes decoded so far, without those still in the decoder's buffer

    def __call__(self, content: bytes, *, final: bool = False) -> str | bytes:
        decoder, encoding = self._decoder, self.encoding
        n_buffered = len(decoder.getstate()[0])
        if self._contains_ascii and not n_buffered and content.isascii():
            self._n_decoded += len(content)
            return content
        try:
            text = decoder.decode(content, final=final)
        except UnicodeDecodeError as error:
            raise UserError(
                f"{self.path} is not {encoding}: byte {self._n_decoded + error.start:,} ({error.reason}); "
                "convert the file, set data.encoding to its encoding, such as cp1252 or utf-16, or set data.level=byte"
            ) from None
        except UnicodeError as error:  # UTF-16 or UTF-32 without a byte-order mark
            advice = f"set data.encoding={encoding}-le or {encoding}-be"
            raise UserError(f"{self.path} cannot be read as {encoding} ({error}); {advice}") from None
        self._n_decoded += n_buffered + len(content) - len(decoder.getstate()[0])
        return text
