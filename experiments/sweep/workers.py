"""Train the points of a sweep: `train.py --resume` in a separate process for each, several at a time on request."""

import concurrent.futures
import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

import torch

from cli.errors import explain
from cli.hints import PROJECT
from cli.stopping import StopRequest
from training.config import TrainConfig
from training.runs.run_folder import RunFolder
from training.runtime import n_cores

TRAIN = PROJECT / "train.py"
OUTPUT = "output.txt"


class Workers:
    """Threads that each train one run after another, in a process of its own."""

    def __init__(self, n_workers: int):
        self.n_workers = n_workers
        self._idle = queue.SimpleQueue[int]()  # the numbers of the workers, which decide their GPUs
        for number in range(n_workers):
            self._idle.put(number)
        self._lock, self._stopping = threading.Lock(), False  # a process starts before `_stop` or not at all
        self._started: list[subprocess.Popen] = []

    def train(
        self, runs: Sequence[tuple[RunFolder, TrainConfig]], ended: Callable[[RunFolder, str | None], None]
    ) -> signal.Signals | None:
        """Train the runs, call `ended(run, reason)` after each, and return the signal that stopped them, if any did.

        reason: why a run failed, or None if it is finished. A failed run does not stop the others. A signal makes each
        process save and end.
        """
        with StopRequest() as stop, concurrent.futures.ThreadPoolExecutor(self.n_workers) as pool:
            futures = {pool.submit(self._train, run, settings): run for run, settings in runs}
            waiting = set(futures)
            try:
                while waiting and not stop.signal:  # a signal interrupts no wait, so the waits are short
                    done, waiting = concurrent.futures.wait(waiting, 0.2, concurrent.futures.FIRST_COMPLETED)
                    for future in done:
                        if not stop.signal:  # the same signal may have ended the run
                            ended(futures[future], future.result())
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
                self._stop(stop.signal or signal.SIGTERM)  # no run outlives an error here
        return stop.signal

    def _train(self, run: RunFolder, settings: TrainConfig) -> str | None:
        """Train one run. Return why it failed, or None if it is finished or was stopped."""
        worker = self._idle.get()
        try:
            run.error.unlink(missing_ok=True)
            with self._lock, (run.path / OUTPUT).open("ab") as output:
                if self._stopping:
                    return None
                process = subprocess.Popen(
                    [sys.executable, str(TRAIN), "--resume", str(run.path)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=os.environ | share_of_machine(worker, self.n_workers, settings),
                    start_new_session=True,  # so that Ctrl-C reaches it only once, through this process
                )
                self._started.append(process)
            status = process.wait()
            return None if self._stopping or run.is_finished() else _reason(run, status)
        except OSError as error:  # its folder is gone, or a process cannot start
            return explain(error)
        finally:
            self._idle.put(worker)

    def _stop(self, number: signal.Signals) -> None:
        """Make every process save and end."""
        with self._lock:
            self._stopping = True
            if os.name == "posix":  # elsewhere, Ctrl-C has reached them already
                for process in self._started:
                    process.send_signal(number)


def _reason(run: RunFolder, status: int) -> str:
    if not run.config.is_file():
        return f"{run.path}: this folder was renamed or deleted during training"
    names = {number.value: number.name for number in signal.Signals}  # without most real-time signals
    reason = f"ended by {names.get(-status, f'signal {-status}')}" if status < 0 else f"exit status {status}"
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
