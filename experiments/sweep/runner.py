"""Runs the points of a sweep, each in a process of its own, several at a time where that is asked for."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from experiments.sweep.folder import SweepFolder
from experiments.sweep.plan import Point
from experiments.sweep.progress import Progress
from training.stopping import StopRequest

TRAIN = Path(__file__).resolve().parents[2] / "train.py"
LOOK_EVERY_S = 0.5


@dataclass
class Job:
    """A point that is being run here: its process, the worker that it occupies, and what ends its claim."""

    point: Point
    process: subprocess.Popen
    worker: int
    claim: contextlib.ExitStack


class Runner:
    """Runs every point that is not finished, one process each; points that other processes run are waited for.

    failed: why, by the point's name, in the order in which it happened. A failed point does not stop the others.
    """

    def __init__(self, folder: SweepFolder, workers: int):
        self.folder, self.workers = folder, workers
        self.failed: dict[str, str] = {}
        self._jobs: list[Job] = []

    def run(self) -> int:
        """Returns the exit status: 0 where all is finished, 1 where a run failed, 128 + n after signal n."""
        with StopRequest() as stop, Progress(self.folder) as progress:
            while waiting := self._waiting():
                self._start(waiting)
                time.sleep(LOOK_EVERY_S)
                self._collect(progress)
                progress.look()
                if stop.signal:
                    self._stop(stop.signal, progress)
                    return 128 + stop.signal
            progress.look()
        return 1 if self.failed else 0

    def _waiting(self) -> list[Point]:
        """What is neither finished nor failed, in the order of the plan; that includes what is running."""
        points = self.folder.plan.points
        return [p for p in points if self._job(p) or not (p.name in self.failed or self.folder.is_finished(p))]

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
                # Whoever ran it before may have finished it since it was looked at.
                if claim.enter_context(self.folder.claim(point)) and not self.folder.is_finished(point):
                    worker = min(set(range(self.workers)) - {job.worker for job in self._jobs})
                    process = self._launch(point, worker)
                    self._jobs.append(Job(point, process, worker, claim.pop_all()))

    def _launch(self, point: Point, worker: int) -> subprocess.Popen:
        run = self.folder.run_of(point)
        with (run.path / "output.txt").open("ab") as output:
            return subprocess.Popen(
                [sys.executable, str(TRAIN), "--resume", str(run.path)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=os.environ | share_of_machine(worker, self.workers, point.config.train.device),
                start_new_session=True,  # Ctrl-C reaches it from here, and once
                preexec_fn=_end_with_parent if sys.platform == "linux" else None,
            )

    def _collect(self, progress: Progress) -> None:
        """Ends the jobs whose processes have ended."""
        for job in list(self._jobs):
            if job.process.poll() is None:
                continue
            self._jobs.remove(job)
            job.claim.close()
            if self.folder.is_finished(job.point):
                progress.finished(job.point)
            else:
                self.failed[job.point.name] = self._reason(job)
                progress.failed(job.point, self.failed[job.point.name])

    def _reason(self, job: Job) -> str:
        output = self.folder.run_of(job.point).path / "output.txt"
        lines = output.read_text(encoding="utf-8", errors="replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "it said nothing")
        return f"{last.removeprefix('train.py: ')} (status {job.process.returncode}; all it said: {output})"

    def _stop(self, number: signal.Signals, progress: Progress) -> None:
        """Has every process here save and end."""
        for job in self._jobs:
            job.process.send_signal(number)
        for job in self._jobs:
            job.process.wait()
            job.claim.close()
        progress.stopped(number)


def share_of_machine(worker: int, workers: int, device: str) -> dict[str, str]:
    """Environment variables that give a worker its share of the cores, and a GPU of its own as far as there are any.

    Nothing where it is alone: then its run is the same, bit for bit, as one that is started by hand.
    """
    share = {}
    if workers > 1 and "OMP_NUM_THREADS" not in os.environ:
        share["OMP_NUM_THREADS"] = str(max(1, _n_cores() // workers))
    if workers > 1 and device in ("auto", "cuda") and torch.cuda.device_count() > 1:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(torch.cuda.device_count())))
        gpus = visible.split(",")
        share["CUDA_VISIBLE_DEVICES"] = gpus[worker % len(gpus)]
    return share


def _n_cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _end_with_parent() -> None:
    """In a new process: asks Linux to have it save and stop when its parent dies, by whatever."""
    pr_set_pdeathsig = 1  # from linux/prctl.h
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)
