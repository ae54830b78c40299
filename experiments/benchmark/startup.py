"""Time from the start of a command to its first result."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from experiments.benchmark.figures import Figure

ROOT = Path(__file__).resolve().parents[2]


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
    return figures


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
