"""Text as character ids, encoded once into a file that is memory-mapped from then on."""

import codecs
import errno
import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from data.config import DataConfig
from data.files import replacing
from data.sources import DEFAULT_CACHE, DownloadError, find_files
from data.vocabulary import UnknownCharacterError, Vocabulary, code_points

CHUNK_BYTES = 1 << 16  # small enough that a chunk and all arrays made from it stay in the CPU's cache
UNICODE = 0x110000
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# A file changed this recently could change again without a new timestamp, so the next start reads it again.
SETTLED_NS = 2_000_000_000


class Split(NamedTuple):
    """Views of a text's ids.

    The validation and test views start one character early: that character is the context of their first prediction.
    Without a test part, the test view has this character only.
    """

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


@dataclass(frozen=True)
class Corpus:
    """An encoded text.

    ids: (n_characters,) memory-mapped array of the smallest unsigned integer type.
    digest: SHA-256 of the file, or of the digests of several files in order.
    fallback_reason: why the config's fallback corpus is used; None if this is the requested corpus.
    """

    name: str
    digest: str
    vocabulary: Vocabulary
    ids: np.ndarray
    fallback_reason: str | None = None

    def split(self, split: Sequence[float], block_size: int) -> Split:
        """Return the text's three parts by `data.split`.

        Raises ValueError if the text is shorter than the given sizes, or a part is too short for a window of
        block_size characters and the next character.
        """
        n = len(self.ids)
        train, validation, test = split
        if max(split) < 1:
            # Counted from the end: [0.81, 0.09, 0.1] tests on exactly the characters that [0.9, 0.1, 0] validates on.
            cuts = [int(n * (1 - test - validation)), int(n * (1 - test)), n]
        else:
            cuts = [int(train), int(train + validation), int(train + validation + test)]
            if cuts[-1] > n:
                raise ValueError(
                    f"data.split={list(split)} needs {cuts[-1]:,} characters, but {self.name} has {n:,}; lower it"
                )
        train_ids, validation_ids, test_ids = np.split(self.ids[: cuts[-1]], cuts[:-1])
        parts = {
            "training": (train_ids, block_size + 1),
            "validation": (validation_ids, block_size),
            "test": (test_ids, block_size if test else 0),
        }
        for name, (ids, needed) in parts.items():
            if len(ids) < needed:
                raise ValueError(
                    f"the corpus {self.name} is too short: model.block_size={block_size} needs {needed:,} characters "
                    f"for {name}, but there are {len(ids):,}; lower model.block_size, change data.split or use a "
                    "longer text"
                )
        return Split(train_ids, self.ids[cuts[0] - 1 : cuts[1]], self.ids[cuts[1] - 1 : cuts[2]])


def open_corpus(config: DataConfig, *, cache: Path = DEFAULT_CACHE) -> Corpus:
    """Open the config's corpus or, if its download fails and the config names a fallback, the fallback.

    Raises ValueError if the text is missing, empty, or not in data.encoding.
    """
    try:
        return load_corpus(config.corpus, config.encoding, cache=cache)
    except DownloadError as error:
        if config.fallback is None:
            raise
        return load_corpus(config.fallback, config.encoding, cache=cache, fallback_reason=str(error))


def load_corpus(
    name: str, encoding: str = "utf-8", *, cache: Path = DEFAULT_CACHE, fallback_reason: str | None = None
) -> Corpus:
    """Open a named corpus, file, folder or glob. If the cache does not have this content, encode it first."""
    files = find_files(name, cache=cache)
    folder = cache / "encoded"
    source = hashlib.sha256(json.dumps([encoding, *map(str, files)]).encode()).hexdigest()
    record_path = folder / f"{source[:16]}.json"
    stats = _stats(files)
    record = _read_record(record_path)
    if record is None or record["stats"] != stats:
        started_ns = time.time_ns()
        digest, characters = _scan(files, encoding)
        if not characters:
            raise ValueError(f"the corpus {name} is empty ({files[0]}); choose a text that is not empty")
        vocabulary = Vocabulary(characters)
        ids_path = _ids_path(folder, digest, encoding, vocabulary)
        n_characters = _encode(files, encoding, vocabulary, ids_path, digest)
        settled = all(started_ns - max(times_ns) > SETTLED_NS for _, _, *times_ns in stats)
        record = {
            "digest": digest,
            "encoding": encoding,
            "characters": vocabulary.characters,
            "n_characters": n_characters,
            "stats": stats if settled else None,
        }
        with replacing(record_path) as file:
            file.write(json.dumps(record).encode())
    vocabulary = Vocabulary(record["characters"])
    ids_path = _ids_path(folder, record["digest"], encoding, vocabulary)
    ids = np.memmap(ids_path, dtype=vocabulary.dtype, mode="r")
    return Corpus(name, record["digest"], vocabulary, ids, fallback_reason)


def _stats(files: list[Path]) -> list[list]:
    """Return [path, size, mtime, ctime] of each file: these reveal a change of its content."""
    stats = [(path, path.stat()) for path in files]
    return [[str(path), s.st_size, s.st_mtime_ns, s.st_ctime_ns] for path, s in stats]


def _ids_path(folder: Path, digest: str, encoding: str, vocabulary: Vocabulary) -> Path:
    """Return the path of the encoded ids. It depends on the content, not on the name or path of the source."""
    return folder / f"{digest[:32]}.{encoding}.{vocabulary.dtype}"


def _read_record(path: Path) -> dict | None:
    """Return the record of an encoded source, or None if it is missing or its ids are missing or incomplete."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        vocabulary = Vocabulary(record["characters"])
        ids_path = _ids_path(path.parent, record["digest"], record["encoding"], vocabulary)
        is_complete = ids_path.stat().st_size == record["n_characters"] * vocabulary.dtype.itemsize
        return record if is_complete else None
    except (FileNotFoundError, ValueError, KeyError):
        return None


def _scan(files: list[Path], encoding: str) -> tuple[str, str]:
    """Return the digest and the set of characters of the files, reading them once."""
    hashes, seen = _Hashes(), np.zeros(UNICODE, dtype=bool)
    for path, content, text in _read(files, encoding, "Reading"):
        hashes.update(path, content)
        seen[code_points(text)] = True
    return hashes.digest(), "".join(map(chr, np.flatnonzero(seen)))


def _encode(files: list[Path], encoding: str, vocabulary: Vocabulary, target: Path, digest: str) -> int:
    """Write the ids of the files to target; return their number. Raises ValueError if the digest has changed."""
    hashes, n_characters = _Hashes(), 0
    most_bytes = vocabulary.dtype.itemsize * sum(path.stat().st_size for path in files)
    changed = ValueError(f"{files[0]}: the text changed while it was being read; start again")
    try:
        with replacing(target) as out:
            for path, content, text in _read(files, encoding, "Encoding"):
                hashes.update(path, content)
                try:
                    out.write(vocabulary.encode(text).data)
                except UnknownCharacterError:
                    raise changed from None
                n_characters += len(text)
            if hashes.digest() != digest:
                raise changed
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        reason = f"the encoded text needs up to {most_bytes:,} bytes ({error.strerror}); free some space"
        raise OSError(f"{target}: {reason}") from None
    return n_characters


class _Hashes:
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
                    n_decoded += n_buffered + len(content) - len(decoder.getstate()[0])
                    yield path, content, text
                    if not content:
                        break
                    bar.update(len(content))
