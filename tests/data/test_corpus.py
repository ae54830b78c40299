import hashlib
import os

import numpy as np
import pytest
from helpers import load_corpus

from data import encoded_cache, encoding, sources
from data.config import DataConfig
from data.corpus import open_corpus
from data.sources import Download, DownloadError


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


@pytest.mark.parametrize("chunk_bytes", [1, 2, 3, 7, 1 << 20])
def test_chunk_boundaries_do_not_change_the_encoded_text(tmp_path, cache, monkeypatch, chunk_bytes):
    monkeypatch.setattr(encoding, "CHUNK_BYTES", chunk_bytes)
    text = "\ufeffMüßiggang 🙂\r\n明月\r\n"
    corpus = load_corpus(write(tmp_path / "a.txt", text), cache=cache)
    assert corpus.vocabulary.decode(corpus.ids[:]) == text
    assert corpus.vocabulary.characters == "".join(sorted(set(text)))
    assert corpus.digest == hashlib.sha256(text.encode()).hexdigest()


def test_the_bundled_play_has_the_expected_size_and_a_small_vocabulary(cache):
    corpus = load_corpus("selmere", cache=cache)
    assert corpus.ids.dtype == np.uint8
    assert len(corpus.ids) == 171_949
    assert len(corpus.vocabulary) <= 65


def test_shakespeare_has_its_published_size_and_vocabulary(cache):
    if not (os.environ.get("CORPUS_MIRROR") or (sources.DEFAULT_CACHE / "shakespeare.txt").exists()):
        pytest.skip("needs CORPUS_MIRROR or a downloaded copy")
    corpus = load_corpus("shakespeare")
    assert (len(corpus.ids), len(corpus.vocabulary)) == (1_115_394, 65)
    train, validation, test = corpus.split(DataConfig().split, 256)
    assert len(train) == 1_003_854
    assert [len(validation) - 1, len(test) - 1] == [111_540, 0]


def test_the_last_tenth_can_be_the_test_part_and_the_tenth_of_the_rest_before_it_the_validation_part(cache):
    corpus = load_corpus("selmere", cache=cache)
    train, validation, test = corpus.split((0.81, 0.09, 0.1), 256)
    assert np.array_equal(test[:], corpus.split((0.9, 0.1, 0.0), 256).validation[:])
    assert np.array_equal(np.concatenate((train[:], validation[1:], test[1:])), corpus.ids[:])
    assert len(validation) - 1 == pytest.approx(0.09 * len(corpus.ids), abs=1)


def test_sizes_in_characters_take_the_parts_from_the_start_of_the_text(tmp_path, cache):
    corpus = load_corpus(write(tmp_path / "a.txt", "abcdefghij"), cache=cache)
    parts = corpus.split((4, 3, 2), 2)
    assert [corpus.vocabulary.decode(part[:]) for part in parts] == ["abcd", "defg", "ghi"]
    with pytest.raises(ValueError, match=r"data.split=\[4, 3, 4\] needs 11 characters, but .* has 10; lower it"):
        corpus.split((4, 3, 4), 2)


def test_several_files_are_joined_in_the_order_of_their_names(tmp_path, cache):
    write(tmp_path / "2.txt", "two\n")
    write(tmp_path / "1.txt", "one\n")
    corpus = load_corpus(str(tmp_path), cache=cache)
    assert corpus.vocabulary.decode(corpus.ids[:]) == "one\ntwo\n"


def test_a_second_start_reads_only_the_encoded_file(tmp_path, cache, monkeypatch):
    path = write(tmp_path / "a.txt", "some text\n")
    os.utime(path, (1e9, 1e9))
    monkeypatch.setattr(encoded_cache, "SETTLED_NS", 0)  # as if the file were old
    first = load_corpus(path, cache=cache)
    monkeypatch.setattr(encoded_cache, "scan", None)  # reading again would fail
    second = load_corpus(path, cache=cache)
    assert np.array_equal(first.ids[:], second.ids[:])
    assert (first.digest, first.vocabulary.characters) == (second.digest, second.vocabulary.characters)


def test_a_recently_written_file_is_read_again_because_its_timestamp_may_hide_a_change(tmp_path, cache, monkeypatch):
    path, scan, scanned = write(tmp_path / "a.txt", "some text\n"), encoded_cache.scan, []
    monkeypatch.setattr(encoded_cache, "scan", lambda *arguments: scanned.append(1) or scan(*arguments))
    for _ in range(2):
        load_corpus(path, cache=cache)
    assert len(scanned) == 2


def test_a_changed_file_is_detected_even_with_the_same_size_and_modification_time(tmp_path, cache):
    path = write(tmp_path / "a.txt", "some text\n")
    os.utime(path, ns=(10**18, 10**18))
    load_corpus(path, cache=cache)
    write(tmp_path / "a.txt", "same text\n")
    os.utime(path, ns=(10**18, 10**18))
    corpus = load_corpus(path, cache=cache)
    assert corpus.vocabulary.decode(corpus.ids[:]) == "same text\n"


def test_files_with_the_same_content_share_an_encoded_file(tmp_path, cache):
    for name in ("a.txt", "b.txt"):
        load_corpus(write(tmp_path / name, "some text\n"), cache=cache)
    assert len(list((cache / "encoded").glob("*.uint8"))) == 1


def test_the_boundary_between_two_files_is_part_of_the_digest(tmp_path, cache):
    parts = ["ab".encode("utf-16"), "cd".encode("utf-16")]  # with a byte-order mark each
    (tmp_path / "parts").mkdir()
    for n, part in enumerate(parts):
        write(tmp_path / "parts" / f"{n}.txt", part)
    joined = write(tmp_path / "joined.txt", b"".join(parts))
    texts = {}
    for corpus in (
        load_corpus(str(tmp_path / "parts"), "utf-16", cache=cache),
        load_corpus(joined, "utf-16", cache=cache),
    ):
        texts[corpus.digest] = corpus.vocabulary.decode(corpus.ids[:])
    assert list(texts.values()) == ["abcd", "ab\ufeffcd"]


@pytest.mark.parametrize("later", ["same size!\n", "longer than before\n"])
def test_a_text_that_changes_while_it_is_being_read_is_an_error_and_leaves_no_file(tmp_path, cache, monkeypatch, later):
    path, scan = write(tmp_path / "a.txt", "!abcdef size hon lgrtmv\n"), encoded_cache.scan

    def scan_then_change(*arguments):
        result = scan(*arguments)
        write(tmp_path / "a.txt", later)
        return result

    monkeypatch.setattr(encoded_cache, "scan", scan_then_change)
    with pytest.raises(ValueError, match=r"a.txt: the text changed while it was being read; start again"):
        load_corpus(path, cache=cache)
    assert [path.name for path in (cache / "encoded").iterdir()] == ["lock"]


@pytest.mark.parametrize("chunk_bytes", [1, 4, 1 << 20])
def test_the_error_for_text_that_is_not_utf8_names_the_offset_of_the_byte(tmp_path, cache, monkeypatch, chunk_bytes):
    monkeypatch.setattr(encoding, "CHUNK_BYTES", chunk_bytes)
    path = write(tmp_path / "a.txt", "hé llo".encode() + b"\xff" + b" and more")
    with pytest.raises(ValueError, match=r"a.txt is not utf-8: byte 7 .*data.encoding"):
        load_corpus(path, cache=cache)
    cut_short = write(tmp_path / "b.txt", "abc€".encode()[:-1])
    with pytest.raises(ValueError, match="byte 3 "):
        load_corpus(cut_short, cache=cache)


@pytest.mark.parametrize("text", ["café\n", "cafe\n"])
@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-16-le", "utf-7", "utf-8-sig"])
def test_other_text_encodings_can_be_read(tmp_path, cache, encoding, text):
    corpus = load_corpus(write(tmp_path / "a.txt", text.encode(encoding)), encoding, cache=cache)
    assert corpus.vocabulary.decode(corpus.ids[:]) == text


def test_a_piece_in_ascii_of_a_text_with_many_characters_is_encoded(tmp_path, cache):
    text = "".join(map(chr, range(256, 600))) + "\n" + "plain\n" * 20_000
    corpus = load_corpus(write(tmp_path / "a.txt", text), cache=cache)
    assert corpus.vocabulary.decode(corpus.ids[:]) == text


def test_utf16_without_a_byte_order_mark_needs_its_byte_order(tmp_path, cache):
    path = write(tmp_path / "a.txt", "café\n".encode("utf-16-be"))
    with pytest.raises(ValueError, match=r"a.txt cannot be read as utf-16 .*set data.encoding=utf-16-le or utf-16-be"):
        load_corpus(path, "utf-16", cache=cache)
    corpus = load_corpus(path, "utf-16-be", cache=cache)
    assert corpus.vocabulary.decode(corpus.ids[:]) == "café\n"


def test_an_empty_file_is_an_error(tmp_path, cache):
    with pytest.raises(ValueError, match="is empty"):
        load_corpus(write(tmp_path / "a.txt", ""), cache=cache)


def test_the_error_for_a_text_that_is_too_short_names_the_part_and_its_size(tmp_path, cache):
    corpus = load_corpus(write(tmp_path / "a.txt", "0123456789" * 10), cache=cache)
    train, val, _ = corpus.split((0.8, 0.2, 0), 20)
    assert corpus.vocabulary.decode(train[:]) == "0123456789" * 8
    assert corpus.vocabulary.decode(val[:]) == "9" + "0123456789" * 2  # starts with the context of its first prediction
    with pytest.raises(ValueError, match=r"block_size=21 needs 21 characters for validation, but there are 20; lower"):
        corpus.split((0.8, 0.2, 0), 21)
    with pytest.raises(ValueError, match=r"block_size=11 needs 11 characters for test, but there are 10; lower"):
        corpus.split((0.7, 0.2, 0.1), 11)
    with pytest.raises(ValueError, match=r"block_size=80 needs 81 characters for training, but there are 80; lower"):
        corpus.split((0.8, 0.2, 0), 80)
    with pytest.raises(ValueError, match="too short"):
        load_corpus(write(tmp_path / "b.txt", "x"), cache=cache).split((0.9, 0.1, 0), 1)


def test_the_fallback_replaces_a_corpus_whose_download_fails_and_gives_the_reason(cache, monkeypatch):
    monkeypatch.setitem(sources.NAMED, "story", Download(url="http://127.0.0.1:9/x", sha256="0" * 64, n_bytes=9))
    monkeypatch.delenv("CORPUS_MIRROR", raising=False)
    corpus = open_corpus(DataConfig(corpus="story", fallback="selmere"), cache=cache)
    assert corpus.name == "selmere"
    assert "story could not be downloaded" in corpus.fallback_reason
    with pytest.raises(DownloadError):
        open_corpus(DataConfig(corpus="story"), cache=cache)


def test_the_fallback_does_not_replace_a_missing_file(cache):
    with pytest.raises(ValueError, match="no such file"):
        open_corpus(DataConfig(corpus="no/such/file.txt", fallback="selmere"), cache=cache)


def test_a_failed_encoding_leaves_no_partial_file(tmp_path, cache, monkeypatch):
    path = write(tmp_path / "a.txt", "søme text\n")
    monkeypatch.setattr(encoding.Vocabulary, "encode", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        load_corpus(path, cache=cache)
    assert [path.name for path in (cache / "encoded").iterdir()] == ["lock"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"split": (0.9, 0.1)}, "0.1\\] must be three numbers"),
        ({"split": (1.0, 0.0, 0.0)}, "training and validation must be above 0"),
        ({"split": (0.9, 0.2, -0.1)}, "test 0 or above"),
        ({"split": (0.8, 0.1, 0.0)}, "fractions must add up to 1"),
        ({"split": (0.9, float("nan"), 0.0)}, "add up to 1"),
        ({"split": (1000.0, 0.1, 0.0)}, "whole numbers of characters"),
        ({"encoding": "utf-9"}, "data.encoding=utf-9"),
        ({"encoding": "rot13"}, "data.encoding=rot13"),
    ],
)
def test_the_error_for_an_invalid_setting_names_it(settings, message):
    with pytest.raises(ValueError, match=message):
        DataConfig(**settings)
