import os
from pathlib import Path

import pytest
from conftest import run_script
from helpers import metrics


def train(name, corpus):
    settings = [f"train.name={name}", "train.device=cpu", "train.eval_characters=4000", "model.block_size=256"]
    finished = run_script("train.py", "--config", "tiny.yaml", *settings, f"data.corpus={corpus}")
    assert finished.returncode == 0, finished.stderr
    return metrics(Path("runs") / name)[-1]["peak_memory_bytes"]


@pytest.mark.nightly
def test_the_memory_of_training_grows_by_8_bytes_for_each_window_of_the_text(workplace):
    text, size = workplace / "long.txt", 300_000_000
    text.write_text("abc", encoding="utf-8")
    os.truncate(text, size)
    least = train("short", "selmere")
    for name in ("encodes", "finds"):
        assert train(name, text) < least + 8 * size / 256 + 50e6  # with pages of the text that were read
