"""Console output of a sweep: one bar for all its runs on a terminal, one line for each run that ends."""

import signal
import time

from cli.console import Console
from training.runs.metrics import read_newest_record
from training.sweep.plan import Point
from training.sweep.sweep_folder import SweepFolder


class SweepBar:
    """Progress through the steps of all points, as the folder has read them from their metrics."""

    def __init__(self, folder: SweepFolder):
        self.folder = folder
        self._began_s, self._first = time.monotonic(), sum(folder.steps.values())
        self._total = sum(point.config.train.max_steps for point in folder.plan.points)
        self._n_failed = 0

    def __enter__(self) -> "SweepBar":
        self._console = Console(self._first, self._total, doing="Sweep")
        before = f", {len(self.folder.finished)} finished before" if self.folder.finished else ""
        self._console.say(f"Sweep of {len(self.folder.plan.points)} runs in {self.folder.path}{before}")
        return self

    def __exit__(self, *_) -> None:
        self._console.close()

    def refresh(self) -> None:
        failed = f", {self._n_failed} failed" if self._n_failed else ""
        self._console.advance_to(sum(self.folder.steps.values()), f"{self._finished()}{failed}")

    def finished(self, point: Point) -> None:
        record = read_newest_record(self.folder.run_of(point).metrics)
        self._console.say(
            f"{point.name}: validation loss {record['best_val_loss'] or float('nan'):.4f}, "
            f"{record['elapsed_s']:.0f} s  ({self._finished()}{self._time_left()})"
        )

    def failed(self, point: Point, reason: str) -> None:
        self._n_failed += 1
        self._console.say(f"{point.name}: FAILED, {reason}")

    def stopped(self, number: signal.Signals) -> None:
        self._console.say(f"Stopped by {number.name}; finished: {self._finished()}")

    def _finished(self) -> str:
        return f"{len(self.folder.finished)} of {len(self.folder.plan.points)} runs"

    def _time_left(self) -> str:
        done = sum(self.folder.steps.values())
        if done <= self._first or done == self._total:
            return ""
        left_s = (self._total - done) * (time.monotonic() - self._began_s) / (done - self._first)
        return f", about {left_s:.0f} s left" if left_s < 90 else f", about {left_s / 60:.0f} min left"
