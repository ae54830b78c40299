"""What a user waits for besides the model: the start of a command, and the encoding of a large text."""

import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

import torch

from data.config import DataConfig
from data.corpus import open_corpus
from data.sources import BUNDLED
from experiments.benchmark.figures import Figure, time_repeats
from experiments.playground.models import Model
from experiments.playground.server import PlaygroundServer
from training.runtime import peak_memory_bytes
from training.trained_model import load_model

ROOT = Path(__file__).resolve().parents[2]
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
            open_corpus(DataConfig(corpus=str(path)), cache=cache)
            rates.append(path.stat().st_size / (time.perf_counter() - began_s) / 1e6)
        grown = peak_memory_bytes(CPU) - before
        time.sleep(2.5)  # a text that has just been written is read again
        opening_s = time_repeats(lambda: open_corpus(DataConfig(corpus=str(path)), cache=cache), repeats, CPU)
    return [
        Figure(f"encoding, {name}", "MB/s", rates),
        Figure(f"encoding, {name}: memory", "MB", [grown / 1e6]),
        Figure(f"opening it again, {name}", "ms", [1e3 * s for s in opening_s]),
    ]


def measure_startup(repeats: int) -> list[Figure]:
    """Measure the seconds to import PyTorch, to the end of the first training step and to the first character."""
    train = [str(ROOT / "train.py"), "--config", str(ROOT / "configs" / "shakespeare.yaml"), "data.corpus=selmere"]
    train += ["train.max_steps=1", "train.log_every_steps=1", "train.sample_length=0"]
    commands = {  # name: (the start of the line to wait for, arguments); the last one samples from the trained model
        "import torch": ("", ["-c", "import torch; print()"]),
        "train.py, first step": ("step 1/", train),
        "sample.py, first character": ("A", [str(ROOT / "sample.py"), "--length", "1", "--prompt", "A"]),
    }
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        for name, (prefix, arguments) in commands.items():
            seconds = [_seconds_until(prefix, arguments, folder) for _ in range(repeats)]
            figures.append(Figure(f"start-up: {name}", "s", seconds))
        times_s = _request_to_character_s(next(Path(folder, "runs").iterdir()), repeats)
    return [*figures, Figure("playground, from a request to a character", "ms", [1e3 * s for s in times_s])]


def _request_to_character_s(run: Path, repeats: int) -> list[float]:
    """Return the seconds of requests, as the page of the playground sends them, for the next character of a text."""
    text, times_s = (BUNDLED / "selmere.txt").read_text(encoding="utf-8")[:200], []
    torch.set_num_threads(1)  # as the playground does
    with PlaygroundServer(("127.0.0.1", 0), [Model(load_model(run, "cpu"))], lambda nonce: "") as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}/write"
        for n in range(100, 100 + 10 * repeats):
            content = json.dumps({"text": text[:n], "length": 1}).encode()
            began_s = time.perf_counter()
            urllib.request.urlopen(
                urllib.request.Request(address, content, {"Content-Type": "application/json"})
            ).read()
            times_s.append(time.perf_counter() - began_s)
        server.shutdown()
    return times_s


def _seconds_until(prefix: str, arguments: list[str], folder: str) -> float:
    """Return the seconds until a Python process prints a line that starts with `prefix`."""
    command = [sys.executable, *arguments]
    began_s = time.perf_counter()
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        has_printed = any(line.startswith(prefix) for line in process.stdout or ())
        elapsed_s = time.perf_counter() - began_s
        process.communicate()
    if not has_printed:
        raise RuntimeError(f"{' '.join(command)} ended with status {process.returncode} and did not print {prefix!r}")
    return elapsed_s
