"""Read runs and group them into variants: runs whose identities differ in the seed alone."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import harmonic_mean
from typing import Any

from cli.errors import UserError
from data.files import is_locked
from experiments.report.packed_sweep import ENDING, identity_in, trained_config, unpack
from experiments.sweep.plan import Plan
from experiments.sweep.sweep_folder import read_plan
from experiments.sweep.values import VARIANTS, labelled, spoken
from training.config import Config
from training.config_file import load_config
from training.evaluation import Evaluation
from training.identity import SEED, identity_of, seedless
from training.runs.metrics import read_records
from training.runs.run_folder import RunFolder


@dataclass(frozen=True)
class Run:
    """A run with at least one evaluation.

    step: of the newest record. evaluations: (step, seconds since the command started, validation loss in nats per
    character). end: the last record of a finished run, see `RunLog.finished`; {} for an unfinished run. identity: see
    `identity_of`. measured_on: of the evaluations, in words.
    """

    folder: RunFolder
    config: Config
    step: int
    evaluations: list[tuple[int, float, float]]
    tokens_per_s: float
    end: dict[str, Any]
    corpus: str
    identity: dict[str, Any]
    measured_on: str

    @property
    def best_loss(self) -> float:
        """The lowest validation loss, that of checkpoints/best.safetensors."""
        return min(loss for _, _, loss in self.evaluations)

    @property
    def state(self) -> str:
        if self.end:
            return "finished"
        activity = "running" if is_locked(self.folder.path) else "stopped"
        return f"{activity} at step {self.step:,} of {self.config.train.max_steps:,}"


@dataclass(frozen=True)
class Variant:
    """Runs whose identities differ in the seed alone, by seed: either finished or unfinished runs.

    choices: the settings that distinguish it from the other variants.
    """

    choices: dict[str, str]
    runs: dict[int, Run]

    @property
    def label(self) -> str:
        label = labelled(self.choices) or "all runs"
        return label if self.is_finished else f"{label} (unfinished)"

    @property
    def is_finished(self) -> bool:
        return all(run.end for run in self.runs.values())

    @property
    def first(self) -> Run:
        """One of its runs; all have the same identity but for the seed, and the same measured_on."""
        return next(iter(self.runs.values()))

    @property
    def losses(self) -> dict[int, float]:
        return {seed: run.best_loss for seed, run in self.runs.items()}

    def losses_by_step(self) -> dict[int, dict[int, float]]:
        """Return the loss of each seed by step, at the steps that all runs evaluated."""
        curves = {seed: {step: loss for step, _, loss in run.evaluations} for seed, run in self.runs.items()}
        steps = sorted(set.intersection(*map(set, curves.values())))
        return {step: {seed: curve[step] for seed, curve in curves.items()} for step in steps}


@dataclass(frozen=True)
class FoundRuns:
    """The runs at some paths: the variants in order, and the names of the runs that are left out, by the reason."""

    variants: list[Variant]
    left_out: dict[str, list[str]]


def find_runs(paths: Sequence[Path]) -> FoundRuns:
    """Read the runs of run folders, sweep folders and packed sweeps. Raises UserError if no run has a loss."""
    found: dict[Path, Run | None] = {}
    plans: dict[Path, Plan] = {}
    for path in paths:
        if path.suffix == ENDING:
            plans[path], records = unpack(path)
            for point in plans[path].points:
                found[path / point.name] = make_run(RunFolder(path / point.name), records[point.name], point.config)
        else:
            plan = read_plan(path) if path.is_dir() else None
            plans |= {path: plan} if plan else {}
            found |= {folder: read_run(RunFolder(folder)) for folder in _run_folders(path, plan)}
    runs = [run for run in found.values() if run]
    without_loss = [folder.name for folder, run in found.items() if not run]
    if not runs:
        places, names = ", ".join(map(str, paths)), ", ".join(without_loss)
        raise UserError(f"{places}: no run with a validation loss yet ({names}); wait for the first evaluation")
    variants = _sort(runs, plans)
    kept = [run for variant in variants for run in variant.runs.values()]
    repeated = [run.folder.path.name for run in runs if run not in kept]
    left_out = {"no validation loss yet": without_loss, "same settings and seed as another run": repeated}
    return FoundRuns(variants, left_out)


def read_run(folder: RunFolder) -> Run | None:
    """Return the run of a folder, or None if it has no validation loss yet."""
    records = read_records(folder.metrics) if folder.metrics.is_file() else []
    return make_run(folder, records, trained_config(records) or load_config(folder.config))


def make_run(folder: RunFolder, records: Sequence[Mapping[str, Any]], config: Config) -> Run | None:
    """Return the run with these metrics and settings, or None if it has no validation loss yet."""
    evaluations = [record for record in records if "val_loss" in record]
    if not evaluations:
        return None
    newest, data = evaluations[-1], config.data
    # Earlier versions did not record the text.
    named = data.val_corpus or f"the validation split of {newest['corpus']} (data.split={list(data.split)})"
    sizes = newest["val_characters"], newest["val_split_characters"], newest["val_context"]
    rates = [record["tokens_per_s"] for record in records if "tokens_per_s" in record]
    return Run(
        folder,
        config,
        records[-1]["step"],
        [(record["step"], record["elapsed_s"], record["val_loss"]) for record in evaluations],
        harmonic_mean(rates) if rates else float("nan"),
        dict(records[-1]) if records[-1].get("finished") else {},
        newest["corpus"],
        identity_in(records, config),
        Evaluation(newest["val_loss"], *sizes).measured_on(newest.get("val_passage", named)),
    )


def name_of(path: Path) -> str:
    """Return the name of a run, a sweep or a packed sweep."""
    return path.stem if path.suffix == ENDING else path.resolve().name


def _run_folders(path: Path, plan: Plan | None) -> list[Path]:
    """Return the run folders of a path; those of a sweep are in the order of its plan."""
    if (path / "config.yaml").is_file():
        return [path]
    inside = sorted(file.parent for file in path.glob("*/config.yaml"))
    if inside:
        planned = [path / point.name for point in plan.points] if plan else []
        return [*dict.fromkeys([*(folder for folder in planned if folder in inside), *inside])]
    if path.is_dir():
        raise UserError(f"{path}: the folder contains neither a run nor a sweep; give the folder of a run or a sweep")
    reason = "neither a folder nor a packed sweep" if path.exists() else "no such folder"
    raise UserError(f"{path}: {reason}; runs and sweeps are in runs/")


def _sort(runs: list[Run], plans: Mapping[Path, Plan]) -> list[Variant]:
    """Group runs by their settings and, in a sweep with named variants, by the variant's name."""
    named: dict[Path, tuple[str, frozenset[str]]] = {}  # the name, and the settings that it implies
    for path, plan in plans.items():
        for point in plan.points:
            if name := point.choices.get(VARIANTS):
                whose = f"{name_of(path)} " if len(plans) > 1 else ""  # whose names may mean different settings
                named[path / point.name] = (whose + name, frozenset(plan.variants[name]))
    groups: dict[tuple, dict[int, Run]] = {}
    for run in runs:
        variant = named.get(run.folder.path, ("", frozenset()))
        groups.setdefault((seedless(run.identity), variant, bool(run.end)), {}).setdefault(run.config.train.seed, run)
    firsts = [next(iter(by_seed.values())) for by_seed in groups.values()]
    known = [identity_of(run.config, {}) | run.identity for run in firsts]
    # A sweep's axes appear in the labels even if only one variant is finished so far, and even if they are paths.
    swept = {key for plan in plans.values() for key, values in plan.axes.items() if len(values) > 1}
    keys = dict.fromkeys(key for run in firsts for key in (*run.identity, *(swept & known[0].keys())) if key != SEED)
    varied = [key for key in keys if key in swept or len({json.dumps(each.get(key)) for each in known}) > 1]

    def variants(keys: Sequence[str]) -> list[Variant]:
        found = []
        for ((_, (name, implied), _), by_seed), values in zip(groups.items(), known, strict=True):
            shown = {key.rpartition(".")[2]: spoken(values.get(key)) for key in keys if key not in implied}
            found.append(Variant(({VARIANTS: name} if name else {}) | shown, dict(sorted(by_seed.items()))))
        return found

    # The origin appears in the labels only if the settings do not tell all variants apart.
    by_settings = variants([key for key in varied if "." in key])
    return by_settings if len({each.label for each in by_settings}) == len(groups) else variants(varied)
