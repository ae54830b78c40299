"""Run the points of a sweep: one process per point, several at a time on request."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import torch

from cli.command import cause_of
from cli.stopping import StopRequest
from training.config import TrainConfig
from training.processes.launching import n_cores, stop_with
from training.sweep.plan import Point
from training.sweep.sweep_bar import SweepBar
from training.sweep.sweep_folder import SweepFolder

TRAIN = Path(__file__).resolve().parents[2] / "train.py"
OUTPUT = "output.txt"
REFRESH_EVERY_S, SIGNAL_CHECKS = 0.5, 5  # signals are checked more often than the folders


@dataclass
class Job:
    """A point that this process runs: its training process, worker number, and claim to release at the end.

    begins_at: the position in output.txt at which this attempt begins.
    """

    point: Point
    process: subprocess.Popen
    worker: int
    begins_at: int
    claim: contextlib.ExitStack


class WorkerPool:
    """A pool that runs every unfinished point in a separate process and waits for the points of other processes.

    It reads the folders of all points once. After that, it reads those of running points only, and that of a point
    before it starts it, because it must not disturb the runs that it times.

    failed: the reason of each failure by the point's name, in order. A failed point does not stop the others, and is
    tried again only by a sweep that starts later.
    """

    def __init__(self, folder: SweepFolder, workers: int):
        self.folder, self.workers = folder, workers
        self.failed: dict[str, str] = {}
        self._jobs: list[Job] = []
        points = folder.plan.points
        self._failed_before = {point.name: folder.failure_of(point) for point in points}
        # By name: the points that are not known to have finished or failed, and the steps before this sweep.
        self._pending = {point.name: point for point in points if not folder.is_finished(point)}
        self._steps_before = dict(folder.steps)

    def run(self) -> int:
        """Return the exit status: 0 if every point finished, 1 if one failed, 128 + n after signal n."""
        with StopRequest() as stop, SweepBar(self.folder) as bar:
            try:
                while self._pending:
                    self._start()
                    for _ in range(SIGNAL_CHECKS):
                        if not stop.signal:
                            time.sleep(REFRESH_EVERY_S / SIGNAL_CHECKS)
                    self._read_running()
                    self._collect(bar, stopping=stop.signal is not None)
                    bar.refresh()
                    if stop.signal:
                        self._stop(stop.signal)
                        bar.stopped(stop.signal)
                        return 128 + stop.signal
            finally:
                self._stop(signal.SIGTERM)  # no run outlives an error here
        return 1 if self.failed else 0

    def _not_ours(self) -> list[Point]:
        """Return the pending points that this process does not run, in the plan's order."""
        ours = {job.point.name for job in self._jobs}
        return [point for name, point in self._pending.items() if name not in ours]

    def _start(self) -> None:
        """Give each free worker a point that no process runs."""
        for point in self._not_ours():
            if len(self._jobs) == self.workers:
                return
            self._start_point(point)

    def _start_point(self, point: Point) -> None:
        """Start a point, unless another process runs it, or has finished it or failed."""
        with contextlib.ExitStack() as claim:
            if not claim.enter_context(self.folder.claim(point)):
                return
            if not self._is_open(point):
                del self._pending[point.name]
                return
            self.folder.note_failure(point, None)
            worker = min(set(range(self.workers)) - {job.worker for job in self._jobs})
            with (self.folder.run_of(point).path / OUTPUT).open("ab") as output:
                begins_at = output.tell()  # before the process, whose writing moves this position
                process = self._launch(point, worker, output)
            self._jobs.append(Job(point, process, worker, begins_at, claim.pop_all()))

    def _is_open(self, point: Point) -> bool:
        """Return whether a point has neither finished nor failed since this sweep started."""
        if self.folder.is_finished(point):
            return False
        failure = self.folder.failure_of(point)
        if failure is None or failure == self._failed_before[point.name]:
            return True
        self.failed[point.name] = failure.splitlines()[0]  # it failed just now in another process
        return False

    def _read_running(self) -> None:
        """Read the progress of this process's points, and of those that other processes have begun."""
        for job in self._jobs:
            self.folder.is_finished(job.point)
        for point in self._not_ours():
            self.folder.is_finished(point)
            if self.folder.steps[point.name] == self._steps_before[point.name]:
                return  # each process begins the points in the plan's order, so the rest wait

    def _launch(self, point: Point, worker: int, output: BinaryIO) -> subprocess.Popen:
        run = self.folder.run_of(point)
        share = share_of_machine(worker, self.workers, point.config.train)
        # A resumed run keeps its number of threads, because another number changes the last bits.
        threads = run.path / "threads"
        if threads.is_file():
            share["OMP_NUM_THREADS"] = threads.read_text(encoding="utf-8").strip()
        else:
            number = share.get("OMP_NUM_THREADS") or str(torch.get_num_threads())
            threads.write_text(f"{number}\n", encoding="utf-8")
        return subprocess.Popen(
            [sys.executable, str(TRAIN), "--resume", str(run.path)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=os.environ | share,
            start_new_session=True,  # so that Ctrl-C reaches it only once, through this process
            preexec_fn=stop_with(os.getpid()),
        )

    def _collect(self, bar: SweepBar, *, stopping: bool) -> None:
        """Close the jobs whose processes have ended; a run that ends because it was stopped has not failed."""
        for job in [job for job in self._jobs if job.process.poll() is not None]:
            self._jobs.remove(job)
            del self._pending[job.point.name]
            if self.folder.is_finished(job.point):
                bar.finished(job.point)
            elif not stopping:
                reason = self.failed[job.point.name] = self._reason(job)
                self.folder.note_failure(job.point, reason)
                bar.failed(job.point, reason)
            job.claim.close()

    def _reason(self, job: Job) -> str:
        output, status = self.folder.run_of(job.point).path / OUTPUT, job.process.returncode
        of_this_attempt = output.read_bytes()[job.begins_at :].decode(errors="replace")
        cause = cause_of(of_this_attempt, TRAIN.name) if status >= 0 else f"ended by {signal.Signals(-status).name}"
        return f"{cause} (status {status}; full output: {output})"

    def _stop(self, number: signal.Signals) -> None:
        """Make every process save and end."""
        for job in self._jobs:
            if os.name == "posix":  # elsewhere, Ctrl-C has reached it already
                job.process.send_signal(number)
        while self._jobs:
            job = self._jobs.pop()
            job.process.wait()
            job.claim.close()


def share_of_machine(worker: int, workers: int, settings: TrainConfig) -> dict[str, str]:
    """Return the environment variables that give a worker its share of the cores and, if possible, separate GPUs.

    A single worker with one process gets none, so that its runs equal runs started by hand, bit for bit.
    """
    share, processes = {}, settings.processes
    if workers * processes > 1 and "OMP_NUM_THREADS" not in os.environ:
        share["OMP_NUM_THREADS"] = str(max(1, n_cores() // (workers * processes)))
    if workers > 1 and settings.device in ("auto", "cuda") and (n_gpus := torch.cuda.device_count()) > 1:
        visible = (os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(n_gpus)))).split(",")[:n_gpus]
        mine = range(worker * processes, (worker + 1) * processes)
        share["CUDA_VISIBLE_DEVICES"] = ",".join(dict.fromkeys(visible[i % n_gpus] for i in mine))
    return share
