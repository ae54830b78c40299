import os
from pathlib import Path

import pytest
from conftest import run_script
from helpers import load_corpus, metrics

GIGABYTE = 10**9


def train(run, *arguments, timeout=300):
    """Train a run in a new process; return its records and the most memory that it took."""
    source = ["--resume", run] if run.exists() else ["--config", "tiny.yaml", f"train.name={run.name}"]
    settings = ["train.device=cpu", "train.eval_characters=4000"]
    finished = run_script("train.py", *source, *settings, *arguments, timeout=timeout)
    assert finished.returncode == 0, finished.stderr
    return metrics(run), metrics(run)[-1]["peak_memory_bytes"]


@pytest.mark.nightly
def test_the_memory_of_training_grows_by_8_bytes_for_each_window_of_the_text(workplace):
    text, size, block_size = workplace / "long.txt", 3 * GIGABYTE // 10, 256
    text.write_text("abc", encoding="utf-8")
    os.truncate(text, size)
    _, least = train(workplace / "runs/short", "data.corpus=selmere", f"model.block_size={block_size}")
    for name in ("encodes", "finds"):
        _, memory = train(workplace / "runs" / name, f"data.corpus={text}", f"model.block_size={block_size}")
        assert memory < least + 8 * size / block_size + 50e6  # with pages of the text that were read


@pytest.mark.huge
def test_a_text_of_20_gigabytes_is_encoded_and_trained_on_within_a_gigabyte_of_memory(workplace):
    piece = "".join(f"{i} bottles of bière on the wall, {i * i}\n" for i in range(100_000)).encode()
    text = workplace / "20-gigabytes.txt"
    with text.open("wb") as file:
        for _ in range(20 * GIGABYTE // len(piece) + 1):
            file.write(piece)
    records, memory = train(workplace / "runs/huge", f"data.corpus={text}", "model.block_size=1024", timeout=3600)
    Path(load_corpus(text).ids.filename).unlink()
    assert records[-1]["finished"]
    assert memory < GIGABYTE  # of resident memory, which includes anonymous memory
