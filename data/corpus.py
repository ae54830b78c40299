"""A text as character ids: encoded once into a memory-mapped file, and opened from there ever after."""

import codecs
import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from data.config import DataConfig
from data.files import replacing
from data.sources import DEFAULT_CACHE, DownloadError, find_files
from data.vocabulary import UnknownCharacterError, Vocabulary, code_points

CHUNK_BYTES = 1 << 16  # small enough that everything made of a chunk stays in the processor's cache
UNICODE = 0x110000
# A file touched this recently could change again without its time changing; it is read again at the next start.
SETTLED_NS = 2_000_000_000


@dataclass(frozen=True)
class Corpus:
    """An encoded text.

    ids: (n_characters,) memory-mapped, of the smallest unsigned integer type.
    digest: SHA-256 of its file or, where there are several, of their digests in order.
    fallback_reason: why this is the config's fallback corpus; None where it is the corpus that was asked for.
    """

    name: str
    digest: str
    vocabulary: Vocabulary
    ids: np.ndarray
    fallback_reason: str | None = None

    def split(self, val_fraction: float, block_size: int) -> tuple[np.ndarray, np.ndarray]:
        """Views (training, validation) of the ids: the last val_fraction of the text is for validation.

        The validation part begins one character early, so that its first character has something to be predicted from.
        Raises ValueError where a part is too short for a window of block_size characters and the one after it.
        """
        n_train = int(len(self.ids) * (1 - val_fraction))
        train, val = self.ids[:n_train], self.ids[max(n_train - 1, 0) :]
        if min(len(train), len(val)) <= block_size:
            raise ValueError(
                f"the corpus {self.name} is too short: {len(train):,} characters to train on and "
                f"{len(self.ids) - n_train:,} to validate on, where model.block_size={block_size} needs more than "
                f"{block_size:,} and at least {block_size:,}; lower model.block_size, change data.val_fraction or take "
                "a longer text"
            )
        return train, val


def open_corpus(config: DataConfig, *, cache: Path = DEFAULT_CACHE) -> Corpus:
    """The config's corpus or, where that cannot be downloaded and the config names one, its fallback.

    Raises ValueError where the text is missing, empty, or not in data.encoding.
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
    """A named corpus, file, folder or glob as ids, encoded into the cache unless the same content lies there."""
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
            raise ValueError(f"the corpus {name} is empty ({files[0]}); name a text with characters in it")
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
    """What changes about a file when its content does: [path, bytes, time of content, time of status], each."""
    stats = [(path, path.stat()) for path in files]
    return [[str(path), s.st_size, s.st_mtime_ns, s.st_ctime_ns] for path, s in stats]


def _ids_path(folder: Path, digest: str, encoding: str, vocabulary: Vocabulary) -> Path:
    """Where the ids of some content lie, whatever it is called and however it came here."""
    return folder / f"{digest[:32]}.{encoding}.{vocabulary.dtype}"


def _read_record(path: Path) -> dict | None:
    """What is known of a source, or None where that is nothing, or where the ids it speaks of are not whole."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        vocabulary = Vocabulary(record["characters"])
        ids_path = _ids_path(path.parent, record["digest"], record["encoding"], vocabulary)
        is_whole = ids_path.stat().st_size == record["n_characters"] * vocabulary.dtype.itemsize
        return record if is_whole else None
    except (FileNotFoundError, ValueError, KeyError):
        return None


def _scan(files: list[Path], encoding: str) -> tuple[str, str]:
    """Digest and set of characters of the files, read in one pass."""
    hashes, seen = _Hashes(), np.zeros(UNICODE, dtype=bool)
    for path, content, text in _read(files, encoding, "Reading"):
        hashes.update(path, content)
        seen[code_points(text)] = True
    return hashes.digest(), "".join(map(chr, np.flatnonzero(seen)))


def _encode(files: list[Path], encoding: str, vocabulary: Vocabulary, target: Path, digest: str) -> int:
    """Writes the ids of the files, which must still have this digest; returns how many there are."""
    hashes, n_characters = _Hashes(), 0
    changed = ValueError(f"{files[0]}: the text changed while it was read; start again")
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
    return n_characters


class _Hashes:
    """SHA-256 of one file, or of the hashes of several: where one ends and the next begins is part of the content."""

    def __init__(self):
        self._of_files = {}

    def update(self, path: Path, content: bytes) -> None:
        self._of_files.setdefault(path, hashlib.sha256()).update(content)

    def digest(self) -> str:
        digests = [sha256.hexdigest() for sha256 in self._of_files.values()]
        return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def _read(files: list[Path], encoding: str, doing: str) -> Iterator[tuple[Path, bytes, str]]:
    """Bytes and text of each of the files, in order and chunk by chunk, so that a corpus may be larger than memory."""
    total = sum(path.stat().st_size for path in files)
    with tqdm(total=total, unit="B", unit_scale=True, desc=doing, disable=None, delay=1, leave=False) as bar:
        for path in files:
            decoder = codecs.getincrementaldecoder(encoding)()
            with path.open("rb") as file:
                n_decoded = 0  # bytes before those that the decoder still holds back
                while True:
                    content = file.read(CHUNK_BYTES)
                    n_held = len(decoder.getstate()[0])
                    try:
                        text = decoder.decode(content, final=not content)
                    except UnicodeDecodeError as error:
                        raise ValueError(
                            f"{path} is not {encoding}: byte {n_decoded + error.start:,} ({error.reason}); "
                            "convert the file, or name its encoding with data.encoding, such as cp1252 or utf-16"
                        ) from None
                    n_decoded += n_held + len(content) - len(decoder.getstate()[0])
                    yield path, content, text
                    if not content:
                        break
                    bar.update(len(content))
