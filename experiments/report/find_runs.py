"""Find the runs of run folders, sweeps and packed sweeps."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cli.errors import UserError
from experiments.report.packed_sweep import ENDING, name_of, unpack
from experiments.report.runs import Run, make_run, read_run
from experiments.report.variants import Variant, make_variants
from experiments.sweep.sweep_folder import read_plan
from experiments.sweep.values import VARIANTS
from training.runs.run_folder import RunFolder


def find_runs(paths: Sequence[Path]) -> tuple[list[Variant], dict[str, list[str]]]:
    """Read the runs of run folders, sweep folders and packed sweeps.

    Return the variants in order, and the names of the runs that are left out, by the reason. Raises UserError if no run
    has a loss.
    """
    found: dict[Path, Run | None] = {}
    for path in paths:
        plan, records = unpack(path) if path.suffix == ENDING else (read_plan(path), None)
        if not plan:
            found |= {folder: read_run(RunFolder(folder)) for folder in _run_folders(path)}
            continue
        whose = f"{name_of(path)} " if len(paths) > 1 else ""  # the names of two sweeps may mean different settings
        for point in plan.points:
            folder = RunFolder(path / point.name)
            run = make_run(folder, records[point.name], point.config) if records else read_run(folder)
            choices, named = {key: value for key, value in point.choices.items() if key != "seed"}, set[str]()
            if name := choices.get(VARIANTS):
                choices[VARIANTS], named = whose + name, {*plan.variants[name]}
            found[folder.path] = run and replace(run, choices=choices, named=named)
    runs = [run for run in found.values() if run]
    without_loss = [folder.name for folder, run in found.items() if not run]
    if not runs:
        places, names = ", ".join(map(str, paths)), ", ".join(without_loss)
        raise UserError(f"{places}: no run with a validation loss yet ({names}); wait for the first evaluation")
    variants = make_variants(runs)
    kept = [run for variant in variants for run in variant.runs.values()]
    repeated = [run.name for run in runs if run not in kept]
    return variants, {"no validation loss yet": without_loss, "same settings and seed as another run": repeated}


def _run_folders(path: Path) -> list[Path]:
    """Return the run folder, or the run folders in a folder. Raises UserError if there is none."""
    if (path / "config.yaml").is_file():
        return [path]
    if inside := sorted(file.parent for file in path.glob("*/config.yaml")):
        return inside
    raise UserError(f"{path}: no run, sweep or packed sweep is there; runs and sweeps are in runs/")
