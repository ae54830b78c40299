"""The folder of a sweep: its plan, and a run folder for each of its points."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout

from data.files import replacing
from experiments.sweep.plan import VARIANTS, Plan, Point, make_plan, setting
from training.config_file import ConfigError, load_config, naming, read_settings, to_yaml
from training.run_folder import RUNS, RunFolder

PLAN_FILE = "sweep.yaml"


class SweepFolder:
    """`runs/NAME/`: sweep.yaml and, for each point, a run folder of the point's name. Several processes may share it.

    Raises ConfigError where a point's folder holds a run with other settings.
    """

    def __init__(self, path: Path, plan: Plan):
        self.path, self.plan = path, plan
        for point in plan.points:
            run = self.run_of(point)
            with FileLock(run.path.with_name(".lock")):
                if not run.config.is_file():
                    run.lay_out(to_yaml(point.config))
            if load_config(run.config) != point.config:
                raise ConfigError(f"{run.path}: its settings were changed; remove the folder to run this point again")

    @classmethod
    def open(cls, name: str, plan: Plan, *, root: Path = RUNS) -> "SweepFolder":
        """The folder of the same sweep, with more or fewer values perhaps, or else a new one: NAME, NAME-2, ..."""
        root.mkdir(parents=True, exist_ok=True)
        number = 1
        with FileLock(root / ".lock"):
            while True:
                path = root / (name if number == 1 else f"{name}-{number}")
                if not path.exists():
                    path.mkdir()
                    _write(path / PLAN_FILE, describe(plan))
                    break
                if (path / PLAN_FILE).is_file() and (both := _merged(path / PLAN_FILE, plan)):
                    _write(path / PLAN_FILE, both)
                    break
                number += 1
        return cls(path, plan)

    def run_of(self, point: Point) -> RunFolder:
        return RunFolder(self.path / point.name)

    def is_finished(self, point: Point) -> bool:
        return self.run_of(point).last_record().get("finished", False)

    @contextlib.contextmanager
    def claim(self, point: Point) -> Iterator[bool]:
        """Whether this process may run the point: True for one process at a time, and while no run is in its folder.

        The claim of a process that has died is free again.
        """
        run = self.run_of(point)
        lock = FileLock(run.path / "claim")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            yield False
            return
        try:
            yield not run.is_locked()  # the run of a sweep that has died may still be saving
        finally:
            lock.release()


def describe(plan: Plan) -> dict[str, Any]:
    """A plan as the settings of a config, from which `make_plan` makes it again."""
    axes = {}
    for key in plan.axes:
        values = [_plain(setting(point.config, key)) for point in plan.points]
        axes[key] = [value for i, value in enumerate(values) if value not in values[:i]]
    if plan.variants:
        # Each with all that any of them sets, for what one leaves out is not otherwise known.
        keys = list(dict.fromkeys(key for changes in plan.variants.values() for key in changes))
        configs = {point.choices[VARIANTS]: point.config for point in plan.points}
        axes[VARIANTS] = {name: {key: _plain(setting(configs[name], key)) for key in keys} for name in plan.variants}
    return {**plan.fixed(), "sweep": axes}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _merged(path: Path, plan: Plan) -> dict[str, Any] | None:
    """The description of a sweep that holds that of a file and a plan, where they differ in values alone."""
    settings = read_settings(path)
    with naming(path):
        before = describe(make_plan(settings))
    now = describe(plan)
    then, sweep = before.pop("sweep"), now["sweep"]
    variants = [description.get(VARIANTS, {}) for description in (then, sweep)]
    conflict = any(variants[0][name] != variants[1][name] for name in variants[0].keys() & variants[1].keys())
    if before != {k: v for k, v in now.items() if k != "sweep"} or list(then) != list(sweep) or conflict:
        return None
    for key in sweep.keys() - {VARIANTS}:
        sweep[key] = then[key] + [value for value in sweep[key] if value not in then[key]]
    if VARIANTS in sweep:
        sweep[VARIANTS] = variants[0] | variants[1]
    return now


def _write(path: Path, description: dict[str, Any]) -> None:
    with replacing(path) as file:
        file.write(yaml.safe_dump(description, sort_keys=False, allow_unicode=True).encode())
