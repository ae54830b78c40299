import hashlib

import pytest
from helpers import load_corpus

from cli.errors import UserError
from data import encoded_text


@pytest.fixture
def load(tmp_path, cache):
    """Return a function that writes a file and returns its corpus."""

    def write_and_load(content, name="a.txt", encoding="utf-8"):
        (tmp_path / name).write_bytes(content)
        return load_corpus(tmp_path / name, encoding, cache=cache)

    return write_and_load


def decoded(corpus):
    return corpus.vocabulary.decode(corpus.ids[:])


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
        with pytest.raises(UserError, match=r"a.txt is not utf-16 \(.*BOM\); unpack or convert it, .* utf-16-le"):
            load(text.encode(encoding), encoding="utf-16")
