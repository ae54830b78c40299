"""The folder of a sweep: its plan and one run folder per point."""

from collections.abc import Sequence
from pathlib import Path

from cli.errors import UserError, checking_values
from data.files import exclusive, replace_text
from experiments.sweep.plan import Plan, Point, larger, make_plan
from training.config_file import load_config, read_settings, to_yaml
from training.runs.differences import changed_settings
from training.runs.run_folder import RUNS, RunFolder, numbered, refuse_links

PLAN_FILE = "sweep.yaml"


class SweepFolder:
    """`runs/NAME/`: sweep.yaml and a run folder for each point, named after it.

    Raises UserError if a point's folder holds a run with other settings, or if there is a link in its place.
    """

    def __init__(self, path: Path, plan: Plan):
        self.path, self.plan = path, plan
        refuse_links(path)
        for point in plan.points:
            run = self.run_of(point)
            if not run.config.is_file():
                run.lay_out(to_yaml(point.config))
                continue
            edits = changed_settings(point.config, load_config(run.config))
            if point.config.train.ancestor:
                edits.pop("data.characters", None)  # a run adds those of its ancestor
            if edits:
                edited = f"{run.config} no longer fits {path / PLAN_FILE} ({'; '.join(edits.values())})"
                raise UserError(f"{edited}; restore the file that was edited, or start another sweep with other values")

    @classmethod
    def open(cls, name: str, plan: Plan, *, root: Path = RUNS) -> "SweepFolder":
        """Return the folder of the same sweep, perhaps with more values, or else a new one: NAME, NAME-2, ..."""
        with exclusive(root, "is creating a sweep", waits=True):
            for path in numbered(root / name):
                there = read_plan(path) if path.exists() else plan
                whole = there and larger(plan, there)
                if whole:
                    break
            assert whole, "the names have no end"
            replace_text(path / PLAN_FILE, to_yaml(whole.settings))
            return cls(path, whole)

    def run_of(self, point: Point) -> RunFolder:
        return RunFolder(self.path / point.name)

    def unfinished(self) -> list[Point]:
        return [point for point in self.plan.points if not self.run_of(point).is_finished()]


def read_plan(folder: Path) -> Plan | None:
    """Return the plan of a sweep's folder; None for any other folder."""
    file = folder / PLAN_FILE
    return load_plan(file) if file.is_file() else None


def load_plan(file: Path, arguments: Sequence[str] = ()) -> Plan:
    """Return the plan of a config with `section.key=values`."""
    settings = read_settings(file)
    with checking_values("" if arguments else f"{file}: "):
        return make_plan(settings, arguments)
