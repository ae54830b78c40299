import bz2
import codecs
import gzip
import hashlib
import io
import lzma
import sys
import zipfile

import pytest
from helpers import load_corpus

from cli.errors import UserError
from data import encoded_text
from data.config import DataConfig
from data.corpus import open_corpus

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


@pytest.fixture
def load(tmp_path, cache):
    """Return a function that writes a file and returns its corpus."""

    def write_and_load(content, name="a.txt", encoding="utf-8"):
        (tmp_path / name).write_bytes(content)
        return load_corpus(tmp_path / name, encoding, cache=cache)

    return write_and_load


def decoded(corpus):
    return corpus.vocabulary.decode(corpus.ids[:])


@pytest.mark.parametrize("suffix", PACKERS)
def test_a_compressed_text_is_the_same_corpus_as_the_text(load, suffix, monkeypatch):
    monkeypatch.setattr(encoded_text, "CHUNK_BYTES", 50)
    content = TEXT.encode()
    parts = [content] if suffix == ".zip" else [content[:1000], content[1000:]]  # as from `cat a.gz b.gz`
    corpus = load(b"".join(map(PACKERS[suffix], parts)), f"a.txt{suffix}")
    assert decoded(corpus) == TEXT
    assert corpus.digest == hashlib.sha256(content).hexdigest()


def test_the_name_of_a_link_says_how_its_file_is_compressed(tmp_path, cache):
    (tmp_path / "blob").write_bytes(gzip.compress(TEXT.encode()))
    (tmp_path / "a.txt.gz").symlink_to("blob")
    corpus = open_corpus(DataConfig(corpus=str(tmp_path / "a.txt.gz")), cache=cache)
    assert decoded(corpus) == TEXT


@pytest.mark.parametrize("suffix", PACKERS)
def test_a_truncated_or_damaged_archive_is_an_error_and_leaves_nothing(load, cache, suffix):
    content = PACKERS[suffix](TEXT.encode())
    flipped = bytearray(content)
    flipped[len(flipped) // 2] ^= 1
    for damaged in (content[: len(content) // 2], content[:-5], bytes(flipped), b"no archive", b""):
        with pytest.raises(UserError, match="cannot be unpacked" if damaged else "cannot be unpacked|is empty"):
            load(damaged, f"a.txt{suffix}")
    assert [file.name for file in (cache / "encoded").iterdir()] == ["lock"]


def test_an_archive_of_several_files_or_an_encrypted_one_is_an_error(load):
    with pytest.raises(UserError, match=r"a.zip cannot be unpacked \(it contains 2 files or folders\); unpack it"):
        load(archive(b"text", ("a.txt", "b.txt")), "a.zip")
    encrypted = bytearray(archive(b"text"))
    for header, place in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        encrypted[encrypted.index(header) + place] |= 1
    with pytest.raises(UserError, match=r"cannot be unpacked \(.*encrypted.*unpack it yourself"):
        load(encrypted, "a.zip")


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python has the library")
def test_without_its_library_the_error_for_a_zst_file_says_what_to_install(load, monkeypatch):
    monkeypatch.setitem(sys.modules, "backports.zstd", None)
    with pytest.raises(UserError, match=r"a.txt.zst: a .zst file needs backports.zstd: pip install backports.zstd"):
        load(b"x", "a.txt.zst")


@pytest.mark.parametrize("chunk_bytes", [1, 2, 3, 4, 7, 1 << 20])
def test_chunk_boundaries_do_not_change_the_encoded_text_nor_the_position_of_an_error(load, monkeypatch, chunk_bytes):
    monkeypatch.setattr(encoded_text, "CHUNK_BYTES", chunk_bytes)
    text = "\ufeffMüßiggang 🙂\r\n明月\r\n"
    corpus = load(text.encode())
    assert decoded(corpus) == text
    assert corpus.vocabulary.characters == "".join(sorted(set(text)))
    assert corpus.digest == hashlib.sha256(text.encode()).hexdigest()
    with pytest.raises(UserError, match=r"a.txt is not utf-8 \(byte 7: .*data.encoding"):
        load("hé llo".encode() + b"\xff" + b" and more")
    with pytest.raises(UserError, match="byte 3: "):
        load("abc€".encode()[:-1])


@pytest.mark.parametrize(("encoding", "content"), [("utf-7", b"a+2AA-b"), ("unicode_escape", rb"a\ud800b")])
def test_an_encoding_that_yields_half_of_a_surrogate_pair_is_an_error(load, cache, encoding, content):
    with pytest.raises(UserError, match=f"a.txt in {encoding}: a character cannot be half of a surrogate pair"):
        load(content, encoding=encoding)
    assert [file.name for file in (cache / "encoded").iterdir()] == ["lock"]


@pytest.mark.parametrize("text", ["café\n", "cafe\n"])
@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-16-le", "utf-7", "utf-8-sig"])
def test_other_text_encodings_can_be_read(load, encoding, text):
    assert decoded(load(text.encode(encoding), encoding=encoding)) == text
    if encoding == "utf-16-le":
        with pytest.raises(UserError, match=r"a.txt is not utf-16 \(.*BOM\); set data.encoding, .* utf-16-le"):
            load(text.encode(encoding), encoding="utf-16")


@pytest.mark.parametrize("encoding", ["utf-16-le", "UTF-16LE", "cp1252", "Windows-1252", "utf-8"])
def test_the_advice_for_a_text_in_another_encoding_is_not_the_same_encoding(load, encoding):
    with pytest.raises(UserError, match=r"set data.encoding, such as (.*); latin-1 reads any file") as raised:
        load(b"\x81\xd8\x81", encoding=encoding)
    advised = raised.value.args[0].partition("such as ")[2].partition(";")[0].split(" or ")
    assert advised and codecs.lookup(encoding).name not in advised
