"""The cache of encoded texts, damaged, deleted, interrupted and shared by processes."""

import dataclasses
import gc
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from conftest import ROOT
from helpers import load_corpus, wait_for

from data import encoded_cache
from data.encoded_text import DamagedTextError, EncodedText
from data.files import exclusive

TEXT = "some text, some more text\n" * 50


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(encoded_cache, "SETTLED_NS", 0)  # as if every file were old
    return tmp_path / "cache"


@pytest.fixture
def text_file(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(TEXT, encoding="utf-8")
    os.utime(path, (1e9, 1e9))
    return str(path)


def encoded_file(cache):
    (file,) = (cache / "encoded").glob("*.uint8")
    return file


def flip_a_bit(file, *, hide):
    """Flip a bit in the middle of a file; if hide, restore its times as far as a program can."""
    times = file.stat()
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    if hide:
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


def decoded(corpus):
    return corpus.vocabulary.decode(corpus.ids[:])


@pytest.mark.parametrize("hide", [False, True], ids=["with a new time", "with its old modification time"])
def test_a_flipped_bit_in_the_encoded_file_is_noticed_and_the_text_is_encoded_again(cache, text_file, capsys, hide):
    load_corpus(text_file, cache=cache)
    flip_a_bit(encoded_file(cache), hide=hide)
    assert decoded(load_corpus(text_file, cache=cache)) == TEXT
    assert "is damaged or missing; the text will be encoded again" in capsys.readouterr().err


def test_damage_that_left_no_trace_in_the_times_is_found_on_request(cache, text_file, capsys):
    """Only a disk changes bits without changing the times of a file, so the test restores the recorded times."""
    load_corpus(text_file, cache=cache)
    flip_a_bit(encoded_file(cache), hide=True)
    (record,) = (cache / "encoded").glob("*.json")
    text = encoded_cache.CachedText(**json.loads(record.read_text(encoding="utf-8"))["text"])
    now = encoded_cache.file_stat(encoded_file(cache))
    encoded_cache.write_record(record, dataclasses.replace(text, ids_stat=now))
    assert decoded(load_corpus(text_file, cache=cache)) != TEXT
    assert decoded(load_corpus(text_file, cache=cache, verify=True)) == TEXT
    assert "is damaged" in capsys.readouterr().err


def test_a_copied_cache_with_new_times_is_verified_once_and_not_encoded_again(cache, text_file, monkeypatch):
    load_corpus(text_file, cache=cache)
    os.utime(encoded_file(cache))
    monkeypatch.setattr(encoded_cache, "scan", None)  # reading the text again would fail
    assert decoded(load_corpus(text_file, cache=cache)) == TEXT
    monkeypatch.setattr(encoded_cache, "file_digest", None)
    assert decoded(load_corpus(text_file, cache=cache)) == TEXT


@pytest.mark.parametrize("keep", [None, 0, 5])
def test_a_missing_or_truncated_encoded_file_is_written_again(cache, text_file, keep):
    load_corpus(text_file, cache=cache)
    file = encoded_file(cache)
    file.unlink() if keep is None else os.truncate(file, keep)
    assert decoded(load_corpus(text_file, cache=cache)) == TEXT


def test_a_file_that_becomes_shorter_while_it_is_in_use_is_an_error(cache, text_file):
    corpus = load_corpus(text_file, cache=cache)
    os.truncate(encoded_file(cache), 20)
    assert len(corpus.ids[:20]) == 20
    with pytest.raises(
        DamagedTextError, match=r"uint8: has become shorter \(the next start of train.py encodes the text again\)"
    ):
        corpus.ids[10:21]


def test_an_id_outside_the_vocabulary_is_an_error(cache, text_file):
    corpus = load_corpus(text_file, cache=cache)
    with encoded_file(cache).open("r+b") as file:
        file.seek(7)
        file.write(bytes([len(corpus.vocabulary)]))
    assert corpus.ids[:7].tolist() == corpus.vocabulary.encode(TEXT[:7]).tolist()
    with pytest.raises(DamagedTextError, match=r"is damaged \(train.py --verify"):
        corpus.ids[:8]


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32"])
def test_slices_and_parts_equal_those_of_an_array(tmp_path, dtype):
    array = np.arange(200, dtype=dtype)
    array.tofile(tmp_path / "ids")
    text = EncodedText(tmp_path / "ids", np.dtype(dtype), n_values=200, n_characters=200)
    assert (len(text), text[:].dtype) == (200, np.dtype(dtype))
    part, same = text.part(50, 150).part(10, 90), array[60:140]
    for piece in (slice(None), slice(3, 9), slice(-5, None), slice(70, 999), slice(9, 3), slice(80, 90)):
        assert np.array_equal(part[piece], same[piece])


# Prints how often the process encoded the text, which counts as old.
ENCODE = """
import sys; sys.path.insert(0, {root!r})
from pathlib import Path
from data import encoded_cache
from data.config import DataConfig
from data.corpus import open_corpus
encoded_cache.SETTLED_NS, encode, calls = -10**18, encoded_cache.encode, []
encoded_cache.encode = lambda *arguments: calls.append(1) or encode(*arguments)
open_corpus(DataConfig(corpus={text!r}), cache=Path({cache!r}))
print(len(calls))
"""


def encoding_process(text, cache):
    code = ENCODE.format(root=str(ROOT), text=str(text), cache=str(cache))
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def long_text(tmp_path):
    path = tmp_path / "long.txt"
    path.write_text("abcdefgh\n" * 4_000_000, encoding="utf-8")
    return path


def test_what_a_killed_encoding_left_is_removed_by_the_next(cache, long_text):
    process = encoding_process(long_text, cache)
    wait_for(lambda: list((cache / "encoded").glob("*.part")))
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert list((cache / "encoded").glob("*.part"))
    corpus = load_corpus(str(long_text), cache=cache)
    assert len(corpus.ids) == 36_000_000
    assert list((cache / "encoded").glob("*.part")) == []


def test_processes_that_need_the_same_text_encode_it_once(cache, long_text):
    processes = [encoding_process(long_text, cache) for _ in range(3)]
    results = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], results
    assert sorted(n_calls for n_calls, _ in results) == ["0\n", "0\n", "1\n"]


def test_a_process_that_waits_for_another_says_so(cache, text_file):
    with exclusive(cache / "encoded", "unused"):
        process = encoding_process(text_file, cache)
        message = process.stderr.readline()
    assert message == f"Waiting for {cache / 'encoded'}: another process is encoding a text\n"
    assert process.communicate(timeout=60)[0] == "1\n"
    assert process.returncode == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text | {"file_characters": [text["file_characters"][0] + 100]},
        lambda text: text | {"file_characters": "12"},
        lambda text: text | {"characters": text["characters"].replace("x", "z")},
        lambda text: {},
    ],
)
def test_a_damaged_record_is_never_trusted(cache, text_file, change):
    load_corpus(text_file, cache=cache)
    (record,) = (cache / "encoded").glob("*.json")
    content = json.loads(record.read_text(encoding="utf-8"))
    record.write_text(json.dumps(content | {"text": change(content["text"])}), encoding="utf-8")
    assert decoded(load_corpus(text_file, cache=cache)) == TEXT
    record.write_text("[]", encoding="utf-8")
    assert decoded(load_corpus(text_file, cache=cache)) == TEXT


def test_a_text_is_encoded_where_the_system_cannot_drop_files_from_memory(cache, text_file, monkeypatch):
    monkeypatch.delattr(os, "posix_fadvise")  # macOS and Windows have none
    assert decoded(load_corpus(text_file, cache=cache)) == TEXT


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning", "error::ResourceWarning")
def test_the_file_of_an_encoded_text_is_closed_with_its_last_part(cache, text_file):
    corpus = load_corpus(text_file, cache=cache)
    part = corpus.ids.part(5, 10)
    file = part._file
    del corpus
    gc.collect()
    os.fstat(file.fileno())
    descriptor = file.fileno()
    del part, file
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
