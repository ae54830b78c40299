"""Real runs that are killed and signalled at random moments: nothing may be lost.

TORTURE_ROUNDS=100 python -m pytest -m nightly tests/training/runs/test_torture.py plays so many rounds of each kind.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time

import pytest
from conftest import ROOT
from helpers import heed_signals, run_differences, workers

from data.sources import BUNDLED
from training.runs.run_folder import RunFolder

pytestmark = pytest.mark.nightly

ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "2"))
CONFIG = """
model: {n_layer: 2, n_head: 2, n_embd: 32, block_size: 32, conv_width: 3, dropout: 0.1}
data: {corpus: text.txt}
optim: {average_fraction: 0.1, weight_decay: 0.1}
train: {max_steps: 400, batch_size: 8, grow_context_at: [0.5], device: cpu, log_every_steps: 10, eval_every_steps: 20,
  keep_checkpoints: 6, sample_length: 50}
"""


def start(folder, n_processes):
    source = ["--resume", "runs/run"] if (folder / "runs/run/config.yaml").is_file() else ["--config", "run.yaml"]
    several = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={n_processes}"]
    command = [sys.executable, *several * (n_processes > 1), str(ROOT / "train.py"), *source]
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    options = {"cwd": folder, "env": os.environ | {"OMP_NUM_THREADS": "1"}, "preexec_fn": heed_signals}
    return subprocess.Popen(command, start_new_session=True, **streams, **options)


def end(process, statuses):
    try:
        _, errors = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode in statuses, errors


def disturb(folder, n_processes, duration_s, rng):
    """Send a signal to a session at a random moment, to one of its processes if it has several."""
    process, number = start(folder, n_processes), rng.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGINT))
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(rng.uniform(0, duration_s))
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):
        os.kill(rng.choice(workers(process) or [process.pid]), number)
    end(process, {0, -number, 128 + number} | ({1} if n_processes > 1 else set()))
    run = folder / "runs/run"
    if run.exists() and not (run / "config.yaml").is_file():
        run.rename(run.with_name(f"unborn-{rng.random()}"))


@pytest.fixture(scope="module", params=[1, 2], ids=["one process", "two processes"])
def calm(request, tmp_path_factory):
    """Return a folder with an undisturbed run, the seconds that it took, and its number of processes."""
    folder = tmp_path_factory.mktemp("calm")
    text = (BUNDLED / "selmere.txt").read_text(encoding="utf-8")[:60_000]
    (folder / "text.txt").write_text(text, encoding="utf-8")
    (folder / "run.yaml").write_text(CONFIG, encoding="utf-8")
    started_s = time.monotonic()
    end(start(folder, request.param), {0})
    return folder, time.monotonic() - started_s, request.param


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_a_run_that_is_disturbed_again_and_again_ends_exactly_like_an_undisturbed_one(calm, tmp_path, seed):
    (folder, duration_s, n_processes), rng = calm, random.Random(seed)
    for name in ("text.txt", "run.yaml"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    for _ in range(rng.randint(3, 10)):
        disturb(tmp_path, n_processes, duration_s, rng)
    end(start(tmp_path, n_processes), {0})
    assert run_differences(RunFolder(tmp_path / "runs/run"), RunFolder(folder / "runs/run")) == []
