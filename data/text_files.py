"""Read text files piece by piece. They may be compressed, which the end of the name tells."""

import codecs
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

from fsspec.implementations.local import LocalFileSystem

from cli.errors import UserError
from cli.optional import optional_library

PACKED = (".bz2", ".gz", ".xz", ".zip", ".zst")
CHUNK_BYTES = 1 << 18  # a chunk, and each array made from it, stays in the CPU's cache


def is_packed(path: Path) -> bool:
    """Return whether a file is compressed, by its name."""
    return path.suffix.lower() in PACKED


def read_text(path: Path, encoding: str) -> Iterator[tuple[bytes, str]]:
    """Yield the content of a file in chunks, and the text that each completes.

    Raises UserError, with the position of the byte, if the content is not in this encoding.
    """
    decoder, n_bytes = codecs.getincrementaldecoder(encoding)(), 0
    for chunk in _read_chunks(path):
        n_bytes += len(chunk)
        try:
            yield chunk, decoder.decode(chunk, final=not chunk)
        except UnicodeError as error:
            reason = str(error)  # UTF-16 or UTF-32 without a byte-order mark
            if isinstance(error, UnicodeDecodeError):
                position = n_bytes - len(error.object) + error.start  # the object includes bytes of earlier chunks
                reason = f"byte {position:,}: {error.reason}"
            advice = "set data.encoding, such as cp1252 or utf-16-le, or set data.level=byte"
            raise UserError(f"{path} is not {encoding} ({reason}); {advice}") from None


def _read_chunks(path: Path) -> Iterator[bytes]:
    """Yield the unpacked content of a file in chunks; the last one is empty."""
    suffix = path.suffix.lower()
    if suffix == ".zst" and sys.version_info < (3, 14):
        optional_library("backports.zstd", f"{path}: a .zst file")
    try:
        if suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                if (n_files := len(archive.namelist())) != 1:
                    raise OSError(f"it contains {n_files} files or folders")
        with LocalFileSystem().open(str(path), "rb", compression="infer" if is_packed(path) else None) as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk
    except Exception as error:  # each library has its own
        if not is_packed(path):
            raise
        raise UserError(f"{path} cannot be unpacked ({error}); unpack it yourself, or restore it") from None
    yield b""
