"""Console output of a sweep: one bar for all its runs on a terminal, one line for each run that ends."""

import signal
import time

from cli.console import Console
from training.runs.metrics import read_newest_record
from training.sweep.point import Point
from training.sweep.sweep_folder import SweepFolder


class SweepBar:
    """Progress through the steps of all points, including those that other processes run."""

    def __init__(self, folder: SweepFolder):
        self.folder, self.points = folder, folder.plan.points
        self._n_before = self._n_finished()
        self._began_s, self._first = time.monotonic(), self._steps()
        self._total = sum(point.config.train.max_steps for point in self.points)
        self._n_failed = 0

    def __enter__(self) -> "SweepBar":
        self._console = Console(self._first, self._total, doing="Sweep")
        if self.folder.passed_over:
            self._console.say(f"{self.folder.passed_over} contains another run or sweep; using a new folder")
        self._console.say(
            f"Sweep of {len(self.points)} runs in {self.folder.path}"
            + (f", {self._n_before} finished before" if self._n_before else "")
        )
        return self

    def __exit__(self, *_) -> None:
        self._console.close()

    def refresh(self) -> None:
        failed = f", {self._n_failed} failed" if self._n_failed else ""
        self._console.advance_to(self._steps(), f"{self._n_finished()} of {len(self.points)} runs{failed}")

    def finished(self, point: Point) -> None:
        record = read_newest_record(self.folder.run_of(point).metrics)
        self._console.say(
            f"{point.name}: validation loss {record['best_val_loss'] or float('nan'):.4f}, "
            f"{record['elapsed_s']:.0f} s  ({self._n_finished()} of {len(self.points)} runs{self._time_left()})"
        )

    def failed(self, point: Point, reason: str) -> None:
        self._n_failed += 1
        self._console.say(f"{point.name}: FAILED, {reason}")

    def stopped(self, number: signal.Signals) -> None:
        self._console.say(f"Stopped by {number.name}; {self._n_finished()} of {len(self.points)} runs are finished")

    def _steps(self) -> int:
        """Return the number of steps done by all points together."""
        return sum(map(self.folder.steps_of, self.points))

    def _n_finished(self) -> int:
        return sum(map(self.folder.is_finished, self.points))

    def _time_left(self) -> str:
        done = self._steps()
        if done <= self._first or done == self._total:
            return ""
        left_s = (self._total - done) * (time.monotonic() - self._began_s) / (done - self._first)
        return f", about {left_s:.0f} s left" if left_s < 90 else f", about {left_s / 60:.0f} min left"
