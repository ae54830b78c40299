"""Train the points of a sweep: `train.py --resume` in a separate process for each, several at a time on request."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence

import torch

from cli.command import StopRequest
from cli.hints import PROJECT
from training.config import TrainConfig
from training.runs.run_folder import RunFolder
from training.runtime import n_cores

TRAIN = PROJECT / "train.py"
OUTPUT = "output.txt"


def train_runs(
    runs: Sequence[tuple[RunFolder, TrainConfig]], n_workers: int, ended: Callable[[RunFolder, str | None], None]
) -> signal.Signals | None:
    """Train the runs, call `ended(run, reason)` after each, and return the signal that stopped them, if any did.

    reason: why a run failed, or None if it is finished. A failed run does not stop the others. A signal makes each
    process save and end.
    """
    waiting, n_workers = list(runs), min(n_workers, len(runs))
    training: dict[int, tuple[RunFolder, subprocess.Popen]] = {}  # by the number of the worker, which decides its GPU
    with StopRequest() as stop:
        try:
            while (waiting or training) and not stop.signal:
                for worker in range(n_workers):
                    if worker in training and training[worker][1].poll() is None:
                        continue
                    over = training.pop(worker, None)
                    if waiting:
                        run, settings = waiting.pop(0)
                        training[worker] = run, _start(run, share_of_machine(worker, n_workers, settings))
                    if over and not stop.signal:  # the same signal may have ended the run
                        run, process = over
                        ended(run, None if run.is_finished() else _reason(run, process.returncode))
                time.sleep(0.1)
        finally:  # no run outlives an error here
            for _, process in training.values():
                if os.name == "posix":  # elsewhere, Ctrl-C has reached them already
                    process.send_signal(stop.signal or signal.SIGTERM)
            for _, process in training.values():
                process.wait()
    return stop.signal


def _start(run: RunFolder, environment: Mapping[str, str]) -> subprocess.Popen:
    run.error.unlink(missing_ok=True)
    with (run.path / OUTPUT).open("ab") as output:
        return subprocess.Popen(
            [sys.executable, str(TRAIN), "--resume", str(run.path)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **environment},
            start_new_session=True,  # so that Ctrl-C reaches it only once, through this process
        )


def _reason(run: RunFolder, status: int) -> str:
    reason = f"ended by signal {-status} ({signal.strsignal(-status)})" if status < 0 else f"exit status {status}"
    with contextlib.suppress(FileNotFoundError):
        reason = run.error.read_text(encoding="utf-8").strip()
    return f"{reason} (full output: {run.path / OUTPUT})"


def share_of_machine(worker: int, n_workers: int, settings: TrainConfig) -> dict[str, str]:
    """Return the environment variables that give a worker its share of the cores and, if possible, separate GPUs.

    A single worker gets none, so that its runs equal runs started by hand, bit for bit.
    """
    share = {}
    if n_workers > 1 and "OMP_NUM_THREADS" not in os.environ:
        share["OMP_NUM_THREADS"] = str(max(1, n_cores() // n_workers))
    if n_workers > 1 and settings.device in ("auto", "cuda") and (n_gpus := torch.cuda.device_count()) > 1:
        visible = (os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(n_gpus)))).split(",")[:n_gpus]
        share["CUDA_VISIBLE_DEVICES"] = visible[worker % n_gpus]
    return share
