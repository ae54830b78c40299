"""The cache of encoded texts: a text is encoded once, and again if it or its encoded file changes."""

import contextlib
import dataclasses
import hashlib
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from cli.errors import UserError
from data.encoded_text import EncodedText
from data.encoding import encode, scan
from data.files import exclusive, file_digest, file_stat, remove_partial_files, replace_text
from data.vocabulary import Vocabulary

BYTES = "bytes"  # in place of an encoding: the ids are the bytes of the files
# A file changed this recently could change again without a new timestamp, so the next start reads it again.
SETTLED_NS = 2_000_000_000


@dataclass(frozen=True)
class CachedText:
    """An encoded text in the cache.

    digest: SHA-256 of the text file, or of the digests of several files in order. file_characters: the number of
    characters from each file. ids_digest: SHA-256 of the encoded file. text_stats, ids_stat: size and times of the
    files, which reveal a change; None if they cannot yet.
    """

    digest: str
    encoding: str
    characters: str
    file_characters: list[int]
    ids_digest: str
    text_stats: list[list] | None
    ids_stat: list

    def path(self, folder: Path) -> Path:
        """Return the path of the encoded file. It depends on the content, not on the name or path of the text."""
        return folder / f"{self.digest[:32]}.{self.encoding}.{Vocabulary(self.characters).dtype}"

    def open(self, folder: Path) -> EncodedText:
        vocabulary, n_characters = Vocabulary(self.characters), sum(self.file_characters)
        return EncodedText(self.path(folder), vocabulary.dtype, n_values=len(vocabulary), n_characters=n_characters)


def cached_text(files: list[Path], encoding: str, folder: Path, *, verify: bool = False) -> CachedText:
    """Return the encoded text of the files; encode it if the cache does not have it.

    encoding: a text encoding, or BYTES. verify: compare the encoded file with its digest even if its size and times
    have not changed. Processes that encode wait for each other. Raises UserError if the files are empty or not in the
    encoding.
    """
    path = record_path(files, encoding, folder)
    recorded = _recorded(path, files)
    if recorded and _is_whole(recorded, path, verify=verify):
        return recorded
    with exclusive(folder, "another process is encoding a text"):
        recorded = _recorded(path, files)  # the other process may have encoded it
        if recorded:
            if _is_whole(recorded, path, verify=verify):
                return recorded
            damaged = recorded.path(folder)
            print(f"warning: {damaged}: is damaged or missing; the text will be encoded again", file=sys.stderr)
        remove_partial_files(folder)
        made = _encode(files, encoding, folder)
        write_record(path, made)
        return made


def record_path(files: list[Path], encoding: str, folder: Path) -> Path:
    """Return where the cache stores the `CachedText` of these files."""
    source = hashlib.sha256(json.dumps([encoding, *map(str, files)]).encode()).hexdigest()
    return folder / f"{source[:16]}.json"


def write_record(path: Path, text: CachedText) -> None:
    """Store a `CachedText` with the digest of its own fields."""
    fields = dataclasses.asdict(text)
    replace_text(path, json.dumps({"text": fields, "sha256": _digest_of(fields)}))


def _recorded(path: Path, files: list[Path]) -> CachedText | None:
    """Return the record if it is whole and the files have not changed since."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["sha256"] != _digest_of(record["text"]):
            return None
        text = CachedText(**record["text"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    return text if text.text_stats == [file_stat(file) for file in files] else None


def _digest_of(fields: dict) -> str:
    return hashlib.sha256(json.dumps(fields).encode()).hexdigest()


def _is_whole(text: CachedText, record: Path, *, verify: bool) -> bool:
    """Return whether the encoded file is as it was written."""
    path = text.path(record.parent)
    try:
        stat = file_stat(path)
        if stat == text.ids_stat and not verify:
            return True
        if file_digest(path) != text.ids_digest:
            return False
    except FileNotFoundError:
        return False
    if stat != text.ids_stat:
        with contextlib.suppress(OSError):  # a cache that cannot be written is verified at every start
            write_record(record, dataclasses.replace(text, ids_stat=stat))
    return True


def _encode(files: list[Path], encoding: str, folder: Path) -> CachedText:
    started_ns = time.time_ns()
    text_stats = [file_stat(file) for file in files]
    decoded_as = "latin-1" if encoding == BYTES else encoding  # latin-1 maps each byte to the character of its value
    digest, characters = scan(files, decoded_as)
    if not characters:
        raise UserError(f"the text {files[0]} is empty; choose a text that is not empty")
    if encoding == BYTES:
        characters = "".join(map(chr, range(256)))
    is_settled = all(started_ns - max(times_ns) > SETTLED_NS for _, _, *times_ns in text_stats)
    text = CachedText(digest, encoding, characters, [], "", text_stats if is_settled else None, [])
    path = text.path(folder)
    file_characters, ids_digest = encode(files, decoded_as, Vocabulary(characters), path, digest)
    return dataclasses.replace(text, file_characters=file_characters, ids_digest=ids_digest, ids_stat=file_stat(path))
