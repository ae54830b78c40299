"""Runs the points of a sweep, each in a process of its own, several at a time where that is asked for."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from experiments.sweep.folder import SweepFolder
from experiments.sweep.plan import Point
from experiments.sweep.progress import Progress
from training.stopping import StopRequest

TRAIN = Path(__file__).resolve().parents[2] / "train.py"
LOOK_EVERY_S, LOOKS = 0.5, 5  # a signal is looked for more often


@dataclass
class Job:
    """A point that is being run here: its process, the worker that it occupies, and what ends its claim."""

    point: Point
    process: subprocess.Popen
    worker: int
    claim: contextlib.ExitStack


class Runner:
    """Runs every point that is not finished, one process each; points that other processes run are waited for.

    failed: why, by the point's name, in the order in which it happened. A failed point does not stop the others, and is
    tried again only by a sweep that is started later.
    """

    def __init__(self, folder: SweepFolder, workers: int):
        self.folder, self.workers = folder, workers
        self.failed: dict[str, str] = {}
        self._jobs: list[Job] = []
        self._failed_before = {point.name: folder.failure_of(point) for point in folder.plan.points}

    def run(self) -> int:
        """Returns the exit status: 0 where all is finished, 1 where a run failed, 128 + n after signal n."""
        with StopRequest() as stop, Progress(self.folder) as progress:
            try:
                while waiting := self._waiting():
                    self._start(waiting)
                    for _ in range(LOOKS):
                        if not stop.signal:
                            time.sleep(LOOK_EVERY_S / LOOKS)
                    self._collect(progress, stopping=stop.signal is not None)
                    progress.look()
                    if stop.signal:
                        self._stop(stop.signal)
                        progress.stopped(stop.signal)
                        return 128 + stop.signal
                progress.look()
            finally:
                self._stop(signal.SIGTERM)  # nothing goes on where this process cannot
        return 1 if self.failed else 0

    def _waiting(self) -> list[Point]:
        """What is neither finished nor failed, in the order of the plan; that includes what is running."""
        return [point for point in self.folder.plan.points if self._job(point) or self._is_to_run(point)]

    def _is_to_run(self, point: Point) -> bool:
        if self.folder.is_finished(point) or point.name in self.failed:
            return False
        failure = self.folder.failure_of(point)
        if failure is None or failure == self._failed_before[point.name]:
            return True
        self.failed[point.name] = failure.splitlines()[0]  # in another process, just now
        return False

    def _job(self, point: Point) -> Job | None:
        return next((job for job in self._jobs if job.point is point), None)

    def _start(self, waiting: list[Point]) -> None:
        """Gives each free worker a point that nobody runs."""
        for point in waiting:
            if len(self._jobs) == self.workers:
                return
            if self._job(point):
                continue
            with contextlib.ExitStack() as claim:
                # Whoever ran it before may have finished it, or failed, since it was looked at.
                if claim.enter_context(self.folder.claim(point)) and self._is_to_run(point):
                    worker = min(set(range(self.workers)) - {job.worker for job in self._jobs})
                    self._failed_before[point.name] = None
                    self.folder.note_failure(point, None)
                    process = self._launch(point, worker)
                    self._jobs.append(Job(point, process, worker, claim.pop_all()))

    def _launch(self, point: Point, worker: int) -> subprocess.Popen:
        run = self.folder.run_of(point)
        share = share_of_machine(worker, self.workers, point.config.train.device)
        # A run that goes on does so with the threads that it began with: with others its last bits would be others.
        threads = run.path / "threads"
        if threads.is_file():
            share["OMP_NUM_THREADS"] = threads.read_text(encoding="utf-8").strip()
        else:
            number = share.get("OMP_NUM_THREADS") or str(torch.get_num_threads())
            threads.write_text(f"{number}\n", encoding="utf-8")
        with (run.path / "output.txt").open("ab") as output:
            return subprocess.Popen(
                [sys.executable, str(TRAIN), "--resume", str(run.path)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=os.environ | share,
                start_new_session=True,  # Ctrl-C reaches it from here, and once
                preexec_fn=_ending_with_this_process() if sys.platform == "linux" else None,
            )

    def _collect(self, progress: Progress, *, stopping: bool) -> None:
        """Ends the jobs whose processes have ended; where all are being stopped together, that is no failure."""
        for job in list(self._jobs):
            if job.process.poll() is None:
                continue
            self._jobs.remove(job)
            if self.folder.is_finished(job.point):
                progress.finished(job.point)
            elif not stopping:
                reason = self.failed[job.point.name] = self._reason(job)
                self.folder.note_failure(job.point, reason)
                progress.failed(job.point, reason)
            job.claim.close()

    def _reason(self, job: Job) -> str:
        output = self.folder.run_of(job.point).path / "output.txt"
        lines = output.read_text(encoding="utf-8", errors="replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "it said nothing")
        return f"{last.removeprefix('train.py: ')} (status {job.process.returncode}; all it said: {output})"

    def _stop(self, number: signal.Signals) -> None:
        """Has every process here save and end."""
        for job in self._jobs:
            job.process.send_signal(number)
        while self._jobs:
            job = self._jobs.pop()
            job.process.wait()
            job.claim.close()


def share_of_machine(worker: int, workers: int, device: str) -> dict[str, str]:
    """Environment variables that give a worker its share of the cores, and a GPU of its own as far as there are any.

    Nothing where it is alone: then its run is the same, bit for bit, as one that is started by hand.
    """
    share = {}
    if workers > 1 and "OMP_NUM_THREADS" not in os.environ:
        share["OMP_NUM_THREADS"] = str(max(1, _n_cores() // workers))
    if workers > 1 and device in ("auto", "cuda") and (n_gpus := torch.cuda.device_count()) > 1:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(n_gpus)))
        share["CUDA_VISIBLE_DEVICES"] = visible.split(",")[:n_gpus][worker % n_gpus]
    return share


def _n_cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _ending_with_this_process() -> Callable[[], None]:
    """What has a new process, on Linux, save and stop when this one dies, by whatever."""
    libc, parent = ctypes.CDLL(None), os.getpid()  # looked up before the fork, after which little is safe
    pr_set_pdeathsig = 1  # from linux/prctl.h

    def prepare() -> None:
        libc.prctl(pr_set_pdeathsig, signal.SIGTERM)
        if os.getppid() != parent:  # it died before that was asked for
            os._exit(1)

    return prepare
