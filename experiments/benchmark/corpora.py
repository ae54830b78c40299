"""Speed and memory of encoding a large text, and of opening it again."""

import shutil
import tempfile
import time
from pathlib import Path

import torch

from data.corpus import load_corpus
from data.sources import BUNDLED
from experiments.benchmark.figures import Figure, time_repeats
from training.runtime import peak_memory_bytes

CPU = torch.device("cpu")


def measure_encoding(name: str, alphabet: str, megabytes: int, repeats: int) -> list[Figure]:
    """Measure megabytes per second from a text file to ids on one thread, and the growth of the peak memory.

    The text repeats the bundled play and appends `alphabet` to each copy. Call this in a new process.
    """
    torch.set_num_threads(1)
    text = (BUNDLED / "selmere.txt").read_bytes() + alphabet.encode()
    rates = []
    with tempfile.TemporaryDirectory() as folder:
        path, cache = Path(folder) / "text.txt", Path(folder) / "cache"
        with path.open("wb") as file:
            for _ in range(megabytes * 1_000_000 // len(text) + 1):
                file.write(text)
        before = peak_memory_bytes(CPU)
        for _ in range(repeats):
            shutil.rmtree(cache, ignore_errors=True)
            began_s = time.perf_counter()
            load_corpus(str(path), cache=cache)
            rates.append(path.stat().st_size / (time.perf_counter() - began_s) / 1e6)
        grown = peak_memory_bytes(CPU) - before
        time.sleep(2.5)  # a text that has just been written is read again
        opening_s = time_repeats(lambda: load_corpus(str(path), cache=cache), repeats, CPU)
    return [
        Figure(f"encoding, {name}", "MB/s", rates),
        Figure(f"encoding, {name}: memory", "MB", [grown / 1e6]),
        Figure(f"opening it again, {name}", "ms", [1e3 * s for s in opening_s]),
    ]
