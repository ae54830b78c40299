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
from cli.optional import optional_library

SUFFIXES = (".gz", ".zip", ".zst")
# zipfile raises NotImplementedError if a file in the archive is compressed in a way that it does not know.
DAMAGED = (EOFError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, NotImplementedError)

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
                pyzstd = optional_library("pyzstd", f"{path}: a .zst file")
                try:
                    with pyzstd.ZstdFile(file) as unpacked:
                        yield unpacked.read, file
                except pyzstd.ZstdError as error:
                    raise EOFError(str(error)) from None
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
