"""Speed and memory of encoding a large text."""

import tempfile
import time
from pathlib import Path

import torch

from data.corpus import load_corpus
from data.sources import BUNDLED
from experiments.benchmark.figures import Figure
from training.runtime import peak_memory_bytes


def write_copies(path: Path, piece: bytes, n_bytes: int) -> None:
    """Write copies of a piece of text, n_bytes or a little more."""
    with path.open("wb") as file:
        for _ in range(-(-n_bytes // len(piece))):
            file.write(piece)


def measure_encoding(name: str, alphabet: str, megabytes: int, repeats: int) -> list[Figure]:
    """Measure megabytes per second from a text file to ids on one thread, and the growth of the peak memory.

    The text repeats the bundled play and appends `alphabet` to each copy. Call this in a new process.
    """
    torch.set_num_threads(1)
    rates = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "text.txt"
        write_copies(path, (BUNDLED / "selmere.txt").read_bytes() + alphabet.encode(), megabytes * 1_000_000)
        before = peak_memory_bytes(torch.device("cpu"))
        for _ in range(repeats):
            with tempfile.TemporaryDirectory(dir=folder) as cache:
                began_s = time.perf_counter()
                load_corpus(str(path), cache=Path(cache))
                rates.append(path.stat().st_size / (time.perf_counter() - began_s) / 1e6)
        grown = peak_memory_bytes(torch.device("cpu")) - before
    return [Figure(f"encoding, {name}", "MB/s", rates), Figure(f"encoding, {name}: memory", "MB", [grown / 1e6])]
