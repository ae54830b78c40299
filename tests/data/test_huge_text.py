"""A text of 100 GB, as sparse files: it opens, trains, evaluates and resumes with as much memory as a short one."""

import dataclasses
import os

import pytest
from conftest import run_script
from helpers import metrics

from data.encoded_cache import CachedText, file_stat, record_path, write_record
from data.sources import DEFAULT_CACHE

GIGABYTE = 10**9
N_CHARACTERS = 100 * 2**30
CACHE = DEFAULT_CACHE / "encoded"
SETTINGS = ["train.device=cpu", "train.eval_characters=4000"]


@pytest.fixture
def huge_text(workplace):
    """Return a sparse text of 100 GB, encoded in the cache as if that had taken its minutes."""
    text = workplace / "huge.txt"
    text.touch()
    os.truncate(text, N_CHARACTERS)
    CACHE.mkdir(parents=True, exist_ok=True)
    cached = CachedText("5bar5e" * 11, "utf-8", "\0abc", [N_CHARACTERS], "", [file_stat(text)], [])
    ids, record = cached.path(CACHE), record_path([text], "utf-8", CACHE)
    ids.touch()
    os.truncate(ids, N_CHARACTERS)
    write_record(record, dataclasses.replace(cached, ids_stat=file_stat(ids)))
    yield text
    ids.unlink()
    record.unlink()


@pytest.mark.slow
def test_100_gigabytes_train_and_resume_with_the_memory_of_a_short_text(workplace, huge_text):
    for arguments in (
        ("--config", "tiny.yaml", "train.name=short", *SETTINGS),
        ("--config", "tiny.yaml", f"data.corpus={huge_text}", "train.name=huge", "train.max_steps=20", *SETTINGS),
        ("--resume", "runs/huge", "train.max_steps=40"),
    ):
        finished = run_script("train.py", *arguments)
        assert finished.returncode == 0, finished.stderr
    huge, short = (metrics(workplace / "runs" / name) for name in ("huge", "short"))
    assert huge[-1]["peak_memory_bytes"] < short[-1]["peak_memory_bytes"] + 20e6
    evaluation = next(record for record in huge if "val_loss" in record)
    assert evaluation["val_characters"] == 4000
    assert evaluation["val_split_characters"] == pytest.approx(N_CHARACTERS / 10, abs=1)


@pytest.mark.huge
def test_a_text_of_20_gigabytes_is_encoded_and_trained_on_within_a_gigabyte_of_memory(workplace):
    piece = "".join(f"{i} bottles of bière on the wall, {i * i}\n" for i in range(100_000)).encode()
    text = workplace / "20-gigabytes.txt"
    with text.open("wb") as file:
        for _ in range(20 * GIGABYTE // len(piece) + 1):
            file.write(piece)
    settings = [f"data.corpus={text}", "train.name=huge", "train.max_steps=20", *SETTINGS]
    before = set(CACHE.glob("*")) if CACHE.exists() else set()
    try:
        finished = run_script("train.py", "--config", "tiny.yaml", *settings, timeout=3600)
        assert finished.returncode == 0, finished.stderr
    finally:
        for path in set(CACHE.glob("*")) - before:
            path.unlink()
    *_, last = metrics(workplace / "runs/huge")
    assert last["finished"]
    assert last["peak_memory_bytes"] < GIGABYTE  # of resident memory, which includes anonymous memory
