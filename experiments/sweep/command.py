"""A sweep from its plan to its report, as `train.py` runs it."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.sweep.folder import PLAN_FILE, SweepFolder
from experiments.sweep.plan import Plan, make_plan
from experiments.sweep.runner import Runner
from training.config_file import naming, read_settings
from training.preparation import prepare_machine, prepare_text


def is_sweep(path: Path) -> bool:
    return (path / PLAN_FILE).is_file()


def start_sweep(plan: Plan, name: str, workers: int) -> int:
    """Runs what is not finished of a plan, in the folder of the same sweep where there is one; the exit status.

    Texts and machine are looked at before anything runs. Raises ValueError where they do not allow every run.
    """
    plan, name = prepare(plan, plan.points[0].config.train.name or name)
    return run(SweepFolder.open(name, plan), workers)


def resume_sweep(path: Path, overrides: Sequence[str], workers: int) -> int:
    """Runs what is not finished of the sweep in a folder; the exit status."""
    if overrides:
        raise ValueError(f"{path} is a sweep, whose settings are fixed; start another one with --config")
    settings = read_settings(path / PLAN_FILE)
    with naming(path / PLAN_FILE):
        plan = make_plan(settings)
        if plan is None:
            raise ValueError("varies nothing; start the sweep again with --config")
    plan, _ = prepare(plan, path.name)
    return run(SweepFolder(path, plan), workers)


def prepare(plan: Plan, name: str) -> tuple[Plan, str]:
    """The plan and its name, with the fallback text in both where that is what it trains on."""
    texts, machines, points = {}, set(), []
    for point in plan.points:
        config = point.config
        sign = (config.data, config.model.block_size)
        if sign not in texts:
            prepared, _, name = prepare_text(config, name)
            texts[sign] = prepared.data
        points.append(dataclasses.replace(point, config=dataclasses.replace(config, data=texts[sign])))
        wanted = (config.train.device, config.train.dtype, config.train.compile, config.train.tensorboard)
        if wanted not in machines:
            prepare_machine(config)
            machines.add(wanted)
    return dataclasses.replace(plan, points=tuple(points)), name


def run(folder: SweepFolder, workers: int) -> int:
    """Runs what is not finished, and writes the report; the exit status: 1 where a run failed."""
    runner = Runner(folder, workers)
    status = runner.run()
    for name, reason in runner.failed.items():
        print(f"train.py: {name} failed: {reason}", file=sys.stderr)
    if any(map(folder.is_finished, folder.plan.points)):
        from experiments.report.write import write_report  # not needed before, and slow to load

        print(f"\n{write_report([folder.path], folder.path / 'report')}")
    if status:
        print(f"To go on: python {Path(sys.argv[0])} --resume {folder.path}")
    return status
