"""A text as character ids in a file that is mapped into memory: it may be larger than memory.

A text is encoded once, and again if it changes. The file is one line of JSON, which describes the text, and the ids.
`head -1` shows the line.
"""

import codecs
import hashlib
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from cli.errors import UserError, checking_values
from data.files import exclusive, remove_partial_files, replacing
from data.vocabulary import Vocabulary, code_points

CHUNK_BYTES = 1 << 18  # a chunk, and each array made from it, stays in the CPU's cache
UNICODE = 0x110000


@dataclass(frozen=True)
class CachedText:
    """An encoded text.

    digests: SHA-256 of each file; "" for a file that repeats a later one and is left out.
    characters: of the vocabulary. file_characters: the number of characters from each file.
    """

    digests: list[str]
    characters: str
    file_characters: list[int]
    ids: np.ndarray


def cached_text(files: list[Path], encoding: str, folder: Path, *, characters: str = "") -> CachedText:
    """Return the encoded text of the files; encode it if the folder does not have it.

    characters: of the vocabulary, besides those of the text. Processes that encode wait for each other. Raises
    UserError if the files are empty, repeat one character or are not in the encoding.
    """
    source = [encoding, characters, *map(_stat, files)]
    name = hashlib.sha256(json.dumps([encoding, characters, *map(str, files)]).encode()).hexdigest()
    path = folder / f"{name[:16]}.ids"
    text = _open(path, source)
    if text is None:
        with exclusive(folder, "is encoding a text", waits=True):
            if not _open(path, source):  # another process may have encoded it
                remove_partial_files(folder)
                _encode(files, encoding, characters, source, path)
        text = _open(path, source)
    assert text, path
    return text


def _open(path: Path, source: list) -> CachedText | None:
    """Return the text of this file if the file is whole and was made from this source."""
    try:
        with path.open("rb") as file:
            header = json.loads(file.readline())
            first_byte = file.tell()
        dtype = Vocabulary(header["characters"]).dtype
        length = sum(header["file_characters"])
        if header.pop("source") != source or path.stat().st_size != first_byte + length * dtype.itemsize:
            return None
        return CachedText(**header, ids=np.memmap(path, dtype, "r", first_byte, (length,)))
    except (FileNotFoundError, ValueError, LookupError, TypeError):  # another version may have written it
        return None


def _encode(files: list[Path], encoding: str, characters: str, source: list, path: Path) -> None:
    """Read the files twice: for their characters and SHA-256, and to write their ids."""
    n_bytes = 2 * sum(file.stat().st_size for file in files)
    with tqdm(total=n_bytes, unit="B", unit_scale=True, desc="Encoding", disable=None, delay=1, leave=False) as bar:
        header = _scan(files, encoding, bar)
        with checking_values(f"{files[0]} in {encoding}: "):
            vocabulary = Vocabulary(header["characters"] + characters)
        header |= {"source": source, "characters": vocabulary.characters}
        with replacing(path) as out:
            out.write(json.dumps(header).encode() + b"\n")
            for file, digest in zip(files, header["digests"], strict=True):
                if not digest:  # it repeats a later file
                    continue
                for content, text in read_text(file, encoding):
                    out.write(vocabulary.encode(text).data)
                    bar.update(len(content))
            if list(map(_stat, files)) != source[2:]:
                raise UserError(f"{files[0]}: the text changed while it was being read; start again")


def _scan(files: list[Path], encoding: str, bar: tqdm) -> dict[str, Any]:
    """Return the digest of each file, the characters in them, and the number of characters from each."""
    seen, digests, file_characters = np.zeros(UNICODE, dtype=bool), [], []
    for file in files:
        sha256, n_characters = hashlib.sha256(), 0
        for content, text in read_text(file, encoding):
            sha256.update(content)
            seen[code_points(text)] = True
            n_characters += len(text)
            bar.update(len(content))
        digests.append(sha256.hexdigest())
        file_characters.append(n_characters)
    if not any(file_characters):
        raise UserError(f"the text {files[0]} is empty; choose a text that is not empty")
    if np.count_nonzero(seen) == 1:
        raise UserError(f"the text {files[0]} repeats one character: nothing to learn; choose another text")
    # Of equal files the last one counts: a validation text comes last, and is never trained on.
    last = {digest: i for i, digest in enumerate(digests)}
    for i, digest in enumerate(digests):
        if last[digest] != i:
            digests[i] = ""
            file_characters[i] = 0
    characters = "".join(map(chr, np.flatnonzero(seen)))
    return {"digests": digests, "characters": characters, "file_characters": file_characters}


def combined(digests: Sequence[str]) -> str:
    """Return the SHA-256 of one file, or of the digests of several in order, because their boundaries matter."""
    kept = [digest for digest in digests if digest]
    return kept[0] if len(kept) == 1 else hashlib.sha256("".join(kept).encode()).hexdigest()


def _stat(path: Path) -> list:
    """Return the path, size, mtime and ctime of a file, which reveal a change."""
    status = path.stat()
    return [str(path), status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def read_text(path: Path, encoding: str) -> Iterator[tuple[bytes, str]]:
    """Yield the content of a file in chunks, and the text that each completes.

    Raises UserError, with the position of the byte, if the content is not in this encoding.
    """
    decoder, n_bytes = codecs.getincrementaldecoder(encoding)(), 0
    with path.open("rb") as file:
        chunks = iter(lambda: file.read(CHUNK_BYTES), b"")
        for chunk in itertools.chain(chunks, [b""]):
            n_bytes += len(chunk)
            try:
                yield chunk, decoder.decode(chunk, final=not chunk)
            except UnicodeError as error:
                reason = str(error)  # UTF-16 or UTF-32 without a byte-order mark
                if isinstance(error, UnicodeDecodeError):
                    position = n_bytes - len(error.object) + error.start  # the object includes bytes of earlier chunks
                    reason = f"byte {position:,}: {error.reason}"
                advice = "unpack or convert it, or train with data.encoding=cp1252 or utf-16-le; latin-1 reads any file"
                raise UserError(f"{path} is not {encoding} ({reason}); {advice}") from None
