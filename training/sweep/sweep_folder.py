"""The folder of a sweep: its plan and one run folder per point."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from data.files import replace_text
from training.config_file import (
    ConfigError,
    dump_yaml,
    load_run_config,
    naming,
    read_settings,
    to_yaml,
    upgraded,
)
from training.runs.metrics import read_newest_record
from training.runs.run_folder import PLAN_FILE, RUNS, RunFolder, is_sweep, numbered
from training.sweep.plan import Plan, Point, describe, make_plan, merged

FAILURE = "failure.txt"


class SweepFolder:
    """`runs/NAME/`: sweep.yaml and a run folder for each point, named after it. Several processes may share it.

    finished: the names of the points whose runs are known to be finished. steps: the known steps of each point, by
    its name; all steps of a finished run, which may have ended early. Both change in `is_finished` only.

    Raises ConfigError if a point's folder holds a run with other settings.
    """

    def __init__(self, path: Path, plan: Plan):
        self.path, self.plan = path, plan
        self.finished: set[str] = set()
        self.steps = dict.fromkeys((point.name for point in plan.points), 0)
        for point in plan.points:
            run = self.run_of(point)
            with FileLock(run.path.with_name(".lock")):
                if not run.config.is_file():
                    run.lay_out(to_yaml(point.config))
            if load_run_config(run.config) != point.config:
                raise ConfigError(f"{run.path}: its settings were changed; remove the folder to run this point again")

    @classmethod
    def open(cls, name: str, plan: Plan, *, root: Path = RUNS) -> "SweepFolder":
        """Return the folder of the same sweep, with new values added, or else a new folder: NAME, NAME-2, ..."""
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / ".lock"):
            for path in numbered(root / name):
                if described := merged(read_plan(path), plan) if path.exists() else describe(plan):
                    path.mkdir(exist_ok=True)
                    replace_text(path / PLAN_FILE, dump_yaml(described))
                    break
        return cls(path, plan)

    def run_of(self, point: Point) -> RunFolder:
        return RunFolder(self.path / point.name)

    def is_finished(self, point: Point) -> bool:
        """Return whether a point's run is finished. Read its metrics, unless it was finished before."""
        if point.name not in self.finished:
            record = read_newest_record(self.run_of(point).metrics)
            self.steps[point.name] = record.get("step", 0)
            if record.get("finished"):
                self.steps[point.name] = point.config.train.max_steps
                self.finished.add(point.name)
        return point.name in self.finished

    def failure_of(self, point: Point) -> str | None:
        """Return why and when the point's last attempt failed, in any process, or None if it did not fail."""
        try:
            return (self.run_of(point).path / FAILURE).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def note_failure(self, point: Point, reason: str | None) -> None:
        path = self.run_of(point).path / FAILURE
        if reason is None:
            path.unlink(missing_ok=True)
        else:
            replace_text(path, f"{reason}\n{time.time()}\n")

    @contextlib.contextmanager
    def claim(self, point: Point) -> Iterator[bool]:
        """Yield whether this process may run the point: True for one process at a time, if no other trains this run.

        The claim of a dead process is released.
        """
        run = self.run_of(point)
        try:
            held = FileLock(run.path / "claim").acquire(timeout=0)
        except Timeout:
            yield False
            return
        with held:
            yield not run.is_locked()  # the run of a killed sweep may still be saving


def read_plan(folder: Path) -> Plan | None:
    """Return the plan of a sweep folder, or None for any other folder."""
    if not is_sweep(folder):
        return None
    settings = read_settings(folder / PLAN_FILE)
    with naming(folder / PLAN_FILE):
        return make_plan(upgraded(settings))
