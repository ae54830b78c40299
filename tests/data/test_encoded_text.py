import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import ROOT
from helpers import load_corpus

from cli.errors import UserError
from data import encoded_text
from data.batches import TrainingBatches
from data.files import exclusive

TEXT = "some text, some more text\n" * 50


@pytest.fixture
def text_file(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def names(cache):
    return sorted(path.name for path in (cache / "encoded").iterdir())


def decoded(corpus):
    return corpus.vocabulary.decode(corpus.ids[:])


def test_a_second_start_reads_only_the_encoded_file(cache, text_file, monkeypatch):
    first = load_corpus(text_file, cache=cache)
    monkeypatch.setattr(encoded_text, "read_text", None)  # reading the text again would fail
    second = load_corpus(text_file, cache=cache)
    assert decoded(first) == decoded(second) == TEXT
    assert first.digest == second.digest


@pytest.mark.parametrize("later", ["some text, same size text\n" * 50, "longer" + TEXT])
def test_a_changed_text_is_encoded_again(cache, text_file, later):
    old = load_corpus(text_file, cache=cache)
    files = names(cache)
    stat = text_file.stat()
    text_file.write_text(later, encoding="utf-8")
    os.utime(text_file, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # its old modification time
    assert decoded(load_corpus(text_file, cache=cache)) == later
    assert names(cache) == files
    assert decoded(old) == TEXT  # a process that reads the old text is not disturbed


@pytest.mark.parametrize("keep", [None, 0, 5, 400])
def test_a_missing_or_truncated_encoded_file_is_written_again(cache, text_file, keep):
    file = Path(load_corpus(text_file, cache=cache).ids.filename)
    file.unlink() if keep is None else os.truncate(file, keep)
    assert decoded(load_corpus(text_file, cache=cache)) == TEXT


@pytest.mark.parametrize("fields", [("characters", "letters"), ("digests", "digest")])
def test_a_file_with_the_fields_of_another_version_is_written_again(cache, text_file, fields):
    file = Path(load_corpus(text_file, cache=cache).ids.filename)
    file.write_bytes(file.read_bytes().replace(*(f'"{field}"'.encode() for field in fields)))
    assert decoded(load_corpus(text_file, cache=cache)) == TEXT


def test_a_text_that_changes_while_it_is_read_is_an_error_and_leaves_no_file(cache, text_file, monkeypatch):
    scan = encoded_text._scan

    def scan_then_change(*arguments):
        result = scan(*arguments)
        text_file.write_text(TEXT[::-1], encoding="utf-8")
        os.utime(text_file, (0, 0))  # a clock of 4 ms might not show the change
        return result

    monkeypatch.setattr(encoded_text, "_scan", scan_then_change)
    with pytest.raises(UserError, match=r"a.txt: the text changed while it was being read; start again"):
        load_corpus(text_file, cache=cache)
    assert names(cache) == ["lock"]


def test_threads_read_the_batches_of_the_main_thread(cache):
    ids = load_corpus("selmere", cache=cache).ids
    batches = TrainingBatches(ids, block_size=64, batch_size=16, seed=0)
    expected = [batches.at(16 * number)[0] for number in range(400)]
    with ThreadPoolExecutor(4) as threads:
        found = threads.map(lambda number: batches.at(16 * number)[0], range(400))
        assert all(one.equal(same) for one, same in zip(found, expected, strict=True))


# Prints how often the process read the text.
ENCODE = """
import sys; sys.path.insert(0, {root!r})
from pathlib import Path
from data import encoded_text
from data.config import DataConfig
from data.corpus import open_corpus
scan, calls = encoded_text._scan, []
encoded_text._scan = lambda *arguments: calls.append(1) or scan(*arguments)
open_corpus(DataConfig(corpus={text!r}), cache=Path({cache!r}))
print(len(calls))
"""


def encoding_process(text, cache, before=""):
    code = before + ENCODE.format(root=str(ROOT), text=str(text), cache=str(cache))
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_what_a_killed_encoding_left_is_removed_by_the_next(cache, text_file):
    process = encoding_process(text_file, cache, "import os; os.fsync = lambda _: os.kill(os.getpid(), 9)")
    process.communicate(timeout=180)
    assert process.returncode == -signal.SIGKILL
    assert any(name.endswith(".part") for name in names(cache))
    assert decoded(load_corpus(text_file, cache=cache)) == TEXT
    assert [Path(name).suffix for name in names(cache)] == [".ids", ""]


def test_processes_that_need_the_same_text_encode_it_once_and_those_that_wait_say_so(cache, text_file):
    with exclusive(cache / "encoded", "unused"):
        processes = [encoding_process(text_file, cache) for _ in range(3)]
        messages = {process.stderr.readline() for process in processes}
    waiting = f"Waiting for {cache / 'encoded'}: another process is encoding a text; if none is, delete "
    assert messages == {f"{waiting}{cache / 'encoded/lock'} and start again\n"}
    n_calls = [process.communicate(timeout=180)[0] for process in processes]
    assert sorted(n_calls) == ["0\n", "0\n", "1\n"]
