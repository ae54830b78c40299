"""The commands that start and resume a sweep."""

import argparse
import dataclasses
import os
import shlex
import subprocess
import sys
from pathlib import Path

from cli.command import cause_of
from cli.errors import UserError
from data.corpus import open_corpus
from training.config import Config
from training.config_file import naming, read_settings
from training.runs.run_folder import PLAN_FILE, is_sweep
from training.runs.starting import prepare_text
from training.runtime import prepare_machine
from training.sweep.plan import Plan, make_plan
from training.sweep.sweep_folder import SweepFolder, read_plan
from training.sweep.workers import WorkerPool

ROOT = Path(__file__).resolve().parents[2]


def find_or_create_sweep(options: argparse.Namespace) -> Path | None:
    """Return the folder of the sweep that the options of train.py name or describe, or None for a single run.

    The folder of a new sweep is a new one, or that of the same sweep, to which new values are added. Raises UserError
    if a point's corpus or device is not available.
    """
    plan = None
    if options.config:
        settings = read_settings(options.config)
        with naming(options.config):
            plan = make_plan(settings, options.overrides, options.sweep)
    if plan is None and not (options.resume and is_sweep(options.resume)):
        return None
    if "WORLD_SIZE" in os.environ:
        raise UserError("a sweep starts the processes of its runs itself; start it with python instead of torchrun")
    if plan:
        return _create(plan, options.config.stem)
    if options.overrides:
        raise UserError(f"{options.resume} is a sweep, whose settings cannot change; start a new one with --config")
    return options.resume


def _create(plan: Plan, name: str) -> Path:
    plan, name = _prepare_texts(plan, plan.points[0].config.train.name or name)
    for point in plan.points:
        prepare_machine(point.config)
    folder = SweepFolder.open(name, plan)
    if folder.path.name != name:
        print(f"{folder.path.with_name(name)} contains another run or sweep; using a new folder", flush=True)
    return folder.path


def run_sweep(path: Path, workers: int, *, verify: bool) -> int:
    """Run every unfinished point of the sweep in a folder, write the report, and return the exit status.

    The status is 1 if a point failed, and 128 + n if signal n stopped the sweep. Raises UserError before any run starts
    if a point's corpus or device is not available.
    """
    plan = read_plan(path)
    if plan is None:
        raise UserError(f"{path / PLAN_FILE}: varies nothing; start the sweep again with --config")
    for data in {point.config.data for point in plan.points}:
        open_corpus(dataclasses.replace(data, fallback=None), verify=verify)  # a sweep never changes its corpus
    for point in plan.points:
        prepare_machine(point.config)
    folder = SweepFolder(path, plan)
    pool = WorkerPool(folder, workers)
    status = pool.run()
    for name, reason in pool.failed.items():
        print(f"train.py: {name} failed: {reason}", file=sys.stderr)
    if folder.finished:
        _report(path)
    if status:
        again = ["python", sys.argv[0], "--resume", str(path), *(["--workers", str(workers)] * (workers > 1))]
        print(f"To resume: {shlex.join(again)}")
    return status


def _prepare_texts(plan: Plan, name: str) -> tuple[Plan, str]:
    """Return the plan and its name; if the corpus is not available, both are changed to the fallback."""
    prepared = {}
    for point in plan.points:
        if (source := _source(point.config)) not in prepared:
            prepared[source] = prepare_text(point.config, name)
    names = {prepared_name for _, _, prepared_name in prepared.values()}
    if len({data.corpus for data, *_ in prepared}) > 1 and names != {name}:
        raise UserError("a sweep over several corpora needs all of them; see the warning above")
    points = []
    for point in plan.points:
        config, corpus, _ = prepared[_source(point.config)]
        corpus.split(config.data.split, point.config.model.block_size)
        points.append(dataclasses.replace(point, config=dataclasses.replace(point.config, data=config.data)))
    return dataclasses.replace(plan, points=tuple(points)), names.pop()


def _source(config: Config) -> tuple:
    """Return what decides a point's text and vocabulary, and whether it fits its ancestor."""
    return config.data, config.train.ancestor, config.model if config.train.ancestor else None


def _report(path: Path) -> None:
    """Run `python -m experiments.report` in a separate process: training does not depend on experiments."""
    print(flush=True)
    path_list = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    finished = subprocess.run(
        [sys.executable, "-P", "-m", "experiments.report", str(path)],  # -P: no module comes from the current directory
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path_list)},
    )
    if finished.returncode:
        cause = cause_of(finished.stderr.decode(errors="replace"), "experiments.report")
        print(f"train.py: the report was not written: {cause}", file=sys.stderr)
