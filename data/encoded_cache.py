"""The cache of encoded texts: a text is encoded once, and again if it changes.

A file of the cache is one line of JSON, which describes the text, and the ids. `head -1` shows the line.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from cli.errors import UserError, checking_values
from data.encoded_text import EncodedText
from data.files import exclusive, file_stat, remove_partial_files, replacing
from data.text_files import is_packed, read_text
from data.vocabulary import UnknownCharacterError, Vocabulary, code_points

UNICODE = 0x110000


@dataclass(frozen=True)
class CachedText:
    """An encoded text.

    digests: SHA-256 of each file, without compression; "" for a file that repeats a later one and is left out.
    characters: of the vocabulary. file_characters: the number of characters from each file.
    """

    digests: list[str]
    characters: str
    file_characters: list[int]
    ids: EncodedText


def cached_text(files: list[Path], encoding: str, folder: Path, *, characters: str = "") -> CachedText:
    """Return the encoded text of the files; encode it if the folder does not have it.

    characters: of the vocabulary, besides those of the text. Processes that encode wait for each other. Raises
    UserError if the files are empty or not in the encoding.
    """
    source = [encoding, characters, *map(file_stat, files)]
    name = hashlib.sha256(json.dumps([encoding, characters, *map(str, files)]).encode()).hexdigest()
    path = folder / f"{name[:16]}.ids"
    if text := _open(path, source):
        return text
    with exclusive(folder, "is encoding a text", waits=True):
        text = _open(path, source)  # the other process may have encoded it
        if text is None:
            remove_partial_files(folder)
            _encode(files, encoding, characters, source, path)
            text = _open(path, source)
    assert text, path
    return text


def _open(path: Path, source: list) -> CachedText | None:
    """Return the text of this file if the file is whole and was made from this source."""
    try:
        file = path.open("rb")
        header = json.loads(file.readline())
        dtype, length, first_byte = Vocabulary(header["characters"]).dtype, sum(header["file_characters"]), file.tell()
        if header.pop("source") != source or path.stat().st_size != first_byte + length * dtype.itemsize:
            return None
        return CachedText(**header, ids=EncodedText(file, dtype, first_byte=first_byte, length=length))
    except (FileNotFoundError, ValueError, LookupError, TypeError):  # another version may have written it
        return None


def _encode(files: list[Path], encoding: str, characters: str, source: list, path: Path) -> None:
    """Read the files twice: for their characters and SHA-256, and to write their ids."""
    changed = UserError(f"{files[0]}: the text changed while it was being read; start again")
    n_bytes = None if any(map(is_packed, files)) else 2 * sum(file.stat().st_size for file in files)
    with tqdm(total=n_bytes, unit="B", unit_scale=True, desc="Encoding", disable=None, delay=1, leave=False) as bar:
        header = _scan(files, encoding, bar)
        with checking_values(f"{files[0]} in {encoding}: "):
            vocabulary = Vocabulary(header["characters"] + characters)
        header |= {"source": source, "characters": vocabulary.characters}
        with replacing(path) as out:
            out.write(json.dumps(header).encode() + b"\n")
            kept = [file for file, digest in zip(files, header["digests"], strict=True) if digest]
            for content, text in (piece for file in kept for piece in read_text(file, encoding)):
                try:
                    out.write(vocabulary.encode(text).data)
                except UnknownCharacterError:
                    raise changed from None
                bar.update(len(content))
            if list(map(file_stat, files)) != source[2:]:
                raise changed


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
    # Of equal files the last one counts: a validation text comes last, and is never trained on.
    last = {digest: i for i, digest in enumerate(digests)}
    for i, digest in enumerate(digests):
        if last[digest] != i:
            digests[i], file_characters[i] = "", 0
    characters = "".join(map(chr, np.flatnonzero(seen)))
    return {"digests": digests, "characters": characters, "file_characters": file_characters}


def combined(digests: Sequence[str]) -> str:
    """Return the SHA-256 of one file, or of the digests of several in order, because their boundaries matter."""
    kept = [digest for digest in digests if digest]
    return kept[0] if len(kept) == 1 else hashlib.sha256("".join(kept).encode()).hexdigest()
