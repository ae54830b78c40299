"""Texts in .gz, .zip and .zst files."""

import gzip
import hashlib
import io
import zipfile

import pytest
from helpers import load_corpus

from data import encoding

TEXT = "".join(f"Line {n}: Müßiggang 🙂\n" for n in range(3000))


def gz(content):
    return gzip.compress(content[:1000]) + gzip.compress(content[1000:])  # two members, as from `cat a.gz b.gz`


def archive(content, names=("text.txt",)):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name in names:
            file.writestr(name, content)
    return buffer.getvalue()


def zst(content):
    pyzstd = pytest.importorskip("pyzstd")
    options = {pyzstd.CParameter.checksumFlag: 1}
    return pyzstd.compress(content[:1000], options) + pyzstd.compress(content[1000:], options)


PACKERS = {".gz": gz, ".zip": archive, ".zst": zst}


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("chunk_bytes", [50, 1 << 16])
def test_a_compressed_text_is_the_same_corpus_as_the_text(tmp_path, cache, suffix, chunk_bytes, monkeypatch):
    monkeypatch.setattr(encoding, "CHUNK_BYTES", chunk_bytes)
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(PACKERS[suffix](TEXT.encode()))
    corpus = load_corpus(str(path), cache=cache)
    assert corpus.vocabulary.decode(corpus.ids[:]) == TEXT
    assert corpus.digest == hashlib.sha256(TEXT.encode()).hexdigest()


@pytest.mark.parametrize("suffix", PACKERS)
def test_a_truncated_or_damaged_archive_is_an_error_and_leaves_nothing(tmp_path, cache, suffix):
    path, content = tmp_path / f"a.txt{suffix}", PACKERS[suffix](TEXT.encode())
    flipped = bytearray(content)
    flipped[len(flipped) // 2] ^= 1
    for damaged in (content[: len(content) // 2], content[:-5], bytes(flipped), b"no archive", b""):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"cannot be unpacked" if damaged or suffix != ".gz" else "is empty"):
            load_corpus(str(path), cache=cache)
    assert [file.name for file in (cache / "encoded").iterdir()] == ["lock"]


def test_a_folder_contains_its_compressed_texts_too(tmp_path, cache):
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "1.txt.gz").write_bytes(gzip.compress(b"one\n"))
    (folder / "2.txt").write_bytes(b"two\n")
    (folder / "3.md").write_bytes(b"three\n")
    corpus = load_corpus(str(folder), cache=cache)
    assert corpus.vocabulary.decode(corpus.ids[:]) == "one\ntwo\n"


def test_an_archive_of_several_files_or_an_encrypted_one_is_an_error(tmp_path, cache):
    path = tmp_path / "a.zip"
    path.write_bytes(archive(b"text", ("a.txt", "b.txt")))
    with pytest.raises(ValueError, match=r"a.zip contains 2 files; unpack it"):
        load_corpus(str(path), cache=cache)
    encrypted = bytearray(archive(b"text"))
    for header in (b"PK\3\4", b"PK\1\2"):
        flags = encrypted.index(header) + (6 if header == b"PK\3\4" else 8)
        encrypted[flags] |= 1
    path.write_bytes(encrypted)
    with pytest.raises(ValueError, match=r"a.zip is encrypted"):
        load_corpus(str(path), cache=cache)


def test_without_pyzstd_the_error_says_what_to_install(tmp_path, cache, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyzstd", None)
    path = tmp_path / "a.txt.zst"
    path.write_bytes(b"x")
    with pytest.raises(ValueError, match="pip install pyzstd"):
        load_corpus(str(path), cache=cache)
