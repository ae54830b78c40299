"""Texts larger than memory open, encode, train, evaluate and resume with as much memory as short ones."""

import json
import os
from pathlib import Path

import pytest
from conftest import run_script
from helpers import load_corpus, metrics

GIGABYTE = 10**9
SETTINGS = ["train.device=cpu", "train.eval_characters=4000"]


def train(*arguments, timeout=300):
    finished = run_script("train.py", *arguments, timeout=timeout)
    assert finished.returncode == 0, finished.stderr


@pytest.fixture
def write_text(workplace, monkeypatch):
    """Return a function that writes a sparse text of a number of characters that begins with 'abc'."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(workplace / "cache"))

    def write(n_characters):
        text = workplace / "huge.txt"
        text.write_text("abc", encoding="utf-8")
        os.truncate(text, n_characters)
        return text

    return write


@pytest.mark.slow
def test_the_memory_of_training_does_not_grow_with_the_text(workplace, write_text):
    """A text of 300 MB is encoded; its encoded file is then stretched to 100 GB, as if that had taken its minutes."""
    text, n_characters = write_text(300_000_000), 100 * 2**30
    runs = ("--config", "tiny.yaml", *SETTINGS)
    train(*runs, "train.name=short")
    train(*runs, "train.name=long", f"data.corpus={text}")
    ids = Path(load_corpus(text).ids.file.name)
    try:
        write_text(n_characters)
        with ids.open("rb") as file:
            header = json.loads(file.readline())
        stat = text.stat()
        header["source"][2] = [str(text), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
        header["file_characters"] = [n_characters]
        ids.write_bytes(json.dumps(header).encode() + b"\n")
        os.truncate(ids, ids.stat().st_size + n_characters)
        train(*runs, "train.name=huge", f"data.corpus={text}", "train.max_steps=20")
        train("--resume", "runs/huge", "train.max_steps=40")
    finally:
        ids.unlink()
    short, long, huge = (metrics(workplace / "runs" / name) for name in ("short", "long", "huge"))
    assert long[-1]["peak_memory_bytes"] < short[-1]["peak_memory_bytes"] + 20e6
    assert huge[-1]["peak_memory_bytes"] < short[-1]["peak_memory_bytes"] + 20e6
    evaluation = next(record for record in huge if "val_loss" in record)
    assert evaluation["val_characters"] == 4000
    assert evaluation["val_split_characters"] == pytest.approx(n_characters / 10, abs=1)


@pytest.mark.huge
def test_a_text_of_20_gigabytes_is_encoded_and_trained_on_within_a_gigabyte_of_memory(workplace):
    piece = "".join(f"{i} bottles of bière on the wall, {i * i}\n" for i in range(100_000)).encode()
    text = workplace / "20-gigabytes.txt"
    with text.open("wb") as file:
        for _ in range(20 * GIGABYTE // len(piece) + 1):
            file.write(piece)
    train(
        "--config", "tiny.yaml", f"data.corpus={text}", "train.name=huge", "train.max_steps=20", *SETTINGS, timeout=3600
    )
    Path(load_corpus(text).ids.file.name).unlink()
    *_, last = metrics(workplace / "runs/huge")
    assert last["finished"]
    assert last["peak_memory_bytes"] < GIGABYTE  # of resident memory, which includes anonymous memory
