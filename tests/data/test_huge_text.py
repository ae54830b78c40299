import json
import os
from pathlib import Path

import pytest
from conftest import run_script
from helpers import load_corpus, metrics

GIGABYTE, N_CHARACTERS = 10**9, 100 * 2**30


def train(run, *arguments, timeout=300):
    """Train a run in a new process; return its records and the most memory that it took."""
    source = ["--resume", run] if run.exists() else ["--config", "tiny.yaml", f"train.name={run.name}"]
    settings = ["train.device=cpu", "train.eval_characters=4000"]
    finished = run_script("train.py", *source, *settings, *arguments, timeout=timeout)
    assert finished.returncode == 0, finished.stderr
    return metrics(run), metrics(run)[-1]["peak_memory_bytes"]


def stretch(text):
    """Make a text and its encoded file 100 GB long, sparse, as if encoding had taken its minutes. Return the latter."""
    ids = Path(load_corpus(text).ids.file.name)
    os.truncate(text, N_CHARACTERS)
    header, stat = json.loads(ids.read_bytes().split(b"\n")[0]), text.stat()
    header["source"][2] = [str(text), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
    ids.write_bytes(json.dumps(header | {"file_characters": [N_CHARACTERS]}).encode() + b"\n")
    os.truncate(ids, ids.stat().st_size + N_CHARACTERS)
    return ids


@pytest.mark.nightly
def test_the_memory_of_training_does_not_grow_with_the_text(workplace):
    text, runs = workplace / "long.txt", workplace / "runs"
    text.write_text("abc", encoding="utf-8")
    os.truncate(text, 3 * GIGABYTE // 10)
    _, limit = train(runs / "short")
    limit += 20e6
    _, encoded = train(runs / "long", f"data.corpus={text}")
    assert encoded < limit
    ids = stretch(text)
    try:
        records, trained = train(runs / "huge", f"data.corpus={text}", "train.max_steps=20")
        _, resumed = train(runs / "huge", "train.max_steps=40")
    finally:
        ids.unlink()
    assert max(trained, resumed) < limit
    evaluation = next(record for record in records if "val_loss" in record)
    assert evaluation["val_characters"] == 4000
    assert evaluation["val_split_characters"] == pytest.approx(N_CHARACTERS / 10, abs=1)


@pytest.mark.huge
def test_a_text_of_20_gigabytes_is_encoded_and_trained_on_within_a_gigabyte_of_memory(workplace):
    piece = "".join(f"{i} bottles of bière on the wall, {i * i}\n" for i in range(100_000)).encode()
    text = workplace / "20-gigabytes.txt"
    with text.open("wb") as file:
        for _ in range(20 * GIGABYTE // len(piece) + 1):
            file.write(piece)
    records, memory = train(workplace / "runs/huge", f"data.corpus={text}", "train.max_steps=20", timeout=3600)
    Path(load_corpus(text).ids.file.name).unlink()
    assert records[-1]["finished"]
    assert memory < GIGABYTE  # of resident memory, which includes anonymous memory
