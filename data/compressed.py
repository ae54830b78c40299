"""Read a text file that may be compressed: .gz, .zip (with one file) and .zst, recognised by the end of the name."""

import contextlib
import gzip
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from cli.errors import UserError

SUFFIXES = (".gz", ".zip", ".zst")
# zipfile raises NotImplementedError if a file in the archive is compressed in a way that it does not know.
DAMAGED = (EOFError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, NotImplementedError)

PIECE_BYTES = 1 << 12  # of a .zst file; its content may be 10,000 times as large

Read = Callable[[int], bytes]  # takes a number of bytes and returns about as many; none at the end


@contextlib.contextmanager
def open_text(path: Path) -> Iterator[tuple[Read, BinaryIO]]:
    """Open a file and return a function that reads its uncompressed content, and the file itself.

    Raises UserError if the content cannot be unpacked.
    """
    try:
        with path.open("rb") as file:
            if path.suffix == ".gz":
                with gzip.open(file) as unpacked:
                    yield unpacked.read, file
            elif path.suffix == ".zip":
                with zipfile.ZipFile(file) as archive, archive.open(_only_member(archive, path)) as unpacked:
                    yield unpacked.read, file
            elif path.suffix == ".zst":
                yield _zstandard_reader(file, path), file
            else:
                yield file.read, file
    except (*DAMAGED, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the system, not of the archive
            raise
        raise UserError(f"{path} cannot be unpacked ({error}); unpack it yourself, or restore it") from None


def _only_member(archive: zipfile.ZipFile, path: Path) -> zipfile.ZipInfo:
    members = [member for member in archive.infolist() if not member.is_dir()]
    if len(members) != 1:
        raise UserError(f"{path} contains {len(members)} files; unpack it and give the folder or a glob")
    if members[0].flag_bits & 1:
        raise UserError(f"{path} is encrypted; unpack it yourself")
    return members[0]


def _zstandard_reader(file: BinaryIO, path: Path) -> Read:
    try:
        import zstandard
    except ImportError:
        raise UserError(f"{path}: .zst files need pip install zstandard; install it, or unpack the file") from None
    frame, unread = zstandard.ZstdDecompressor().decompressobj(), b""

    def read(n_bytes: int) -> bytes:
        nonlocal frame, unread
        content = bytearray()
        while len(content) < n_bytes:
            compressed = unread or file.read(PIECE_BYTES)
            if not compressed:
                if not frame.eof:
                    raise EOFError("it ends too early")
                break
            if frame.eof:
                frame = zstandard.ZstdDecompressor().decompressobj()
            try:
                content += frame.decompress(compressed)
            except zstandard.ZstdError as error:
                raise EOFError(str(error)) from None
            unread = frame.unused_data
        return bytes(content)

    return read
