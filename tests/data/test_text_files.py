"""Texts in other encodings, and compressed ones."""

import bz2
import gzip
import hashlib
import io
import lzma
import sys
import zipfile

import pytest
from helpers import load_corpus

from cli.errors import UserError
from data import text_files

TEXT = "".join(f"Line {n}: Müßiggang 🙂\n" for n in range(3000))


def archive(content, names=("text.txt",)):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name in names:
            file.writestr(name, content)
    return buffer.getvalue()


def zst(content):
    zstd = pytest.importorskip("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
    return zstd.compress(content, options={zstd.CompressionParameter.checksum_flag: 1})


PACKERS = {".bz2": bz2.compress, ".gz": gzip.compress, ".xz": lzma.compress, ".zip": archive, ".zst": zst}


@pytest.mark.parametrize("suffix", PACKERS)
def test_a_compressed_text_is_the_same_corpus_as_the_text(tmp_path, cache, suffix, monkeypatch):
    monkeypatch.setattr(text_files, "CHUNK_BYTES", 50)
    path, content, pack = tmp_path / f"a.txt{suffix}", TEXT.encode(), PACKERS[suffix]
    parts = [content] if suffix == ".zip" else [content[:1000], content[1000:]]  # as from `cat a.gz b.gz`
    path.write_bytes(b"".join(map(pack, parts)))
    corpus = load_corpus(path, cache=cache)
    assert corpus.vocabulary.decode(corpus.ids[:]) == TEXT
    assert corpus.digest == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("suffix", PACKERS)
def test_a_truncated_or_damaged_archive_is_an_error_and_leaves_nothing(tmp_path, cache, suffix):
    path, content = tmp_path / f"a.txt{suffix}", PACKERS[suffix](TEXT.encode())
    flipped = bytearray(content)
    flipped[len(flipped) // 2] ^= 1
    for damaged in (content[: len(content) // 2], content[:-5], bytes(flipped), b"no archive", b""):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match="cannot be unpacked" if damaged else "cannot be unpacked|is empty"):
            load_corpus(path, cache=cache)
    assert [file.name for file in (cache / "encoded").iterdir()] == ["lock"]


def test_an_archive_of_several_files_or_an_encrypted_one_is_an_error(tmp_path, cache):
    path = tmp_path / "a.zip"
    path.write_bytes(archive(b"text", ("a.txt", "b.txt")))
    with pytest.raises(UserError, match=r"a.zip contains 2 files or folders; unpack it"):
        load_corpus(path, cache=cache)
    encrypted = bytearray(archive(b"text"))
    for header in (b"PK\3\4", b"PK\1\2"):
        flags = encrypted.index(header) + (6 if header == b"PK\3\4" else 8)
        encrypted[flags] |= 1
    path.write_bytes(encrypted)
    with pytest.raises(UserError, match=r"cannot be unpacked \(.*encrypted.*unpack it yourself"):
        load_corpus(path, cache=cache)


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python has the library")
def test_without_its_library_the_error_for_a_zst_file_says_what_to_install(tmp_path, cache, monkeypatch):
    monkeypatch.setitem(sys.modules, "backports.zstd", None)
    (tmp_path / "a.txt.zst").write_bytes(b"x")
    with pytest.raises(UserError, match=r"a.txt.zst: a .zst file needs backports.zstd: pip install backports.zstd"):
        load_corpus(tmp_path / "a.txt.zst", cache=cache)


@pytest.mark.parametrize("chunk_bytes", [1, 2, 3, 7, 1 << 20])
def test_chunk_boundaries_do_not_change_the_encoded_text(tmp_path, cache, monkeypatch, chunk_bytes):
    monkeypatch.setattr(text_files, "CHUNK_BYTES", chunk_bytes)
    text = "\ufeffMüßiggang 🙂\r\n明月\r\n"
    (tmp_path / "a.txt").write_bytes(text.encode())
    corpus = load_corpus(tmp_path / "a.txt", cache=cache)
    assert corpus.vocabulary.decode(corpus.ids[:]) == text
    assert corpus.vocabulary.characters == "".join(sorted(set(text)))
    assert corpus.digest == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize("chunk_bytes", [1, 4, 1 << 20])
def test_the_error_for_text_that_is_not_utf8_names_the_offset_of_the_byte(tmp_path, cache, monkeypatch, chunk_bytes):
    monkeypatch.setattr(text_files, "CHUNK_BYTES", chunk_bytes)
    path = tmp_path / "a.txt"
    path.write_bytes("hé llo".encode() + b"\xff" + b" and more")
    with pytest.raises(UserError, match=r"a.txt is not utf-8: byte 7 .*data.encoding"):
        load_corpus(path, cache=cache)
    path.write_bytes("abc€".encode()[:-1])
    with pytest.raises(UserError, match="byte 3 "):
        load_corpus(path, cache=cache)


@pytest.mark.parametrize("text", ["café\n", "cafe\n"])
@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-16-le", "utf-7", "utf-8-sig"])
def test_other_text_encodings_can_be_read(tmp_path, cache, encoding, text):
    (tmp_path / "a.txt").write_bytes(text.encode(encoding))
    corpus = load_corpus(tmp_path / "a.txt", encoding, cache=cache)
    assert corpus.vocabulary.decode(corpus.ids[:]) == text


def test_utf16_without_a_byte_order_mark_needs_its_byte_order(tmp_path, cache):
    (tmp_path / "a.txt").write_bytes("café\n".encode("utf-16-be"))
    with pytest.raises(UserError, match=r"a.txt cannot be read as utf-16 .*set data.encoding=utf-16-le or utf-16-be"):
        load_corpus(tmp_path / "a.txt", "utf-16", cache=cache)
    corpus = load_corpus(tmp_path / "a.txt", "utf-16-be", cache=cache)
    assert corpus.vocabulary.decode(corpus.ids[:]) == "café\n"
