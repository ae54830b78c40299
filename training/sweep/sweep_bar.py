"""Console output of a sweep: one bar for all its runs on a terminal, one line for each run that ends."""

import signal
import time
from collections.abc import Iterable

from cli.console import Console
from training.runs.metrics import read_newest_record
from training.sweep.plan import Point
from training.sweep.sweep_folder import SweepFolder


class SweepBar:
    """Progress through the steps of all points, including those that other processes are seen to run."""

    def __init__(self, folder: SweepFolder):
        self.folder = folder
        self._steps = {point.name: folder.steps_of(point) for point in folder.plan.points}
        self._began_s, self._first = time.monotonic(), sum(self._steps.values())
        self._total = sum(point.config.train.max_steps for point in folder.plan.points)
        self._n_failed = 0

    def __enter__(self) -> "SweepBar":
        self._console = Console(self._first, self._total, doing="Sweep")
        before = f", {self.folder.n_finished} finished before" if self.folder.n_finished else ""
        self._console.say(f"Sweep of {len(self._steps)} runs in {self.folder.path}{before}")
        return self

    def __exit__(self, *_) -> None:
        self._console.close()

    def refresh(self, points: Iterable[Point]) -> None:
        """Show the progress of these points, which have run since the last call."""
        self._steps |= {point.name: self.folder.steps_of(point) for point in points}
        failed = f", {self._n_failed} failed" if self._n_failed else ""
        self._console.advance_to(sum(self._steps.values()), f"{self._finished()}{failed}")

    def finished(self, point: Point) -> None:
        self.refresh([point])
        record = read_newest_record(self.folder.run_of(point).metrics)
        self._console.say(
            f"{point.name}: validation loss {record['best_val_loss'] or float('nan'):.4f}, "
            f"{record['elapsed_s']:.0f} s  ({self._finished()}{self._time_left()})"
        )

    def failed(self, point: Point, reason: str) -> None:
        self._n_failed += 1
        self._console.say(f"{point.name}: FAILED, {reason}")

    def stopped(self, number: signal.Signals) -> None:
        self._console.say(f"Stopped by {number.name}; {self._finished()} are finished")

    def _finished(self) -> str:
        return f"{self.folder.n_finished} of {len(self._steps)} runs"

    def _time_left(self) -> str:
        done = sum(self._steps.values())
        if done <= self._first or done == self._total:
            return ""
        left_s = (self._total - done) * (time.monotonic() - self._began_s) / (done - self._first)
        return f", about {left_s:.0f} s left" if left_s < 90 else f", about {left_s / 60:.0f} min left"
