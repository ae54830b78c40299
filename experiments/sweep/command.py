"""A sweep from its plan to its report, as `train.py` runs it."""

import dataclasses
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from data.corpus import open_corpus
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
    plan, name = prepare_texts(plan, plan.points[0].config.train.name or name)
    prepare_machines(plan)
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
    for data in {point.config.data for point in plan.points}:
        open_corpus(dataclasses.replace(data, fallback=None))  # its own texts or none
    prepare_machines(plan)
    return run(SweepFolder(path, plan), workers)


def prepare_texts(plan: Plan, name: str) -> tuple[Plan, str]:
    """The plan and its name, with the fallback text in both where that is what it trains on."""
    prepared = {}
    for point in plan.points:
        if point.config.data not in prepared:
            prepared[point.config.data] = prepare_text(point.config, name)
    names = {named for _, _, named in prepared.values()}
    if len({data.corpus for data in prepared}) > 1 and names != {name}:
        raise ValueError("a sweep over texts does not go without one of them; see the warning above")
    points = []
    for point in plan.points:
        config, corpus, _ = prepared[point.config.data]
        corpus.split(config.data.val_fraction, point.config.model.block_size)
        points.append(dataclasses.replace(point, config=dataclasses.replace(point.config, data=config.data)))
    return dataclasses.replace(plan, points=tuple(points)), names.pop()


def prepare_machines(plan: Plan) -> None:
    """Raises ValueError where this machine lacks what a point wants of it."""
    wanted = {}
    for point in plan.points:
        settings = point.config.train
        wanted[settings.device, settings.dtype, settings.compile, settings.tensorboard] = point.config
    for config in wanted.values():
        prepare_machine(config)


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
        again = ["python", sys.argv[0], "--resume", str(folder.path), *(["--workers", str(workers)] * (workers > 1))]
        print(f"To go on: {shlex.join(again)}")
    return status
