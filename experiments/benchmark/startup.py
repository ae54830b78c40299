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
    with tempfile.TemporaryDirectory() as folder:
        train = [str(ROOT / "train.py"), "--config", str(ROOT / "configs" / "shakespeare.yaml"), "data.corpus=selmere"]
        train += ["train.max_steps=1", "train.log_every_steps=1", "train.sample_length=0"]
        sample = [str(ROOT / "sample.py"), "--length", "1", "--prompt", "A"]
        imports = [_seconds_until("", ["-c", "import torch; print()"], folder) for _ in range(repeats)]
        steps = [_seconds_until("step 1/", train, folder) for _ in range(repeats)]
        characters = [_seconds_until("A", sample, folder) for _ in range(repeats)]
    return [
        Figure("start-up: import torch", "s", imports),
        Figure("start-up: train.py, first step", "s", steps),
        Figure("start-up: sample.py, first character", "s", characters),
    ]


def _seconds_until(prefix: str, arguments: list[str], folder: str) -> float:
    """Return the seconds until a Python process prints a line that starts with `prefix`."""
    began_s = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(prefix):
                elapsed_s = time.perf_counter() - began_s
                process.stdout.read()
                return elapsed_s
    raise RuntimeError(
        f"python {' '.join(arguments)} ended with status {process.returncode} and did not print {prefix!r}"
    )
