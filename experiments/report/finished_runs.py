"""Finished runs, read from their folders and sorted into variants: what differs between them but for the seed."""

import dataclasses
import difflib
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.config import Config
from training.config_file import load_config, naming, read_settings, to_dict
from training.run_folder import RunFolder
from training.sweep.folder import PLAN_FILE
from training.sweep.plan import SEED, Plan, make_plan, setting
from training.sweep.values import VARIANTS, spoken

# Settings that make no variant: the name, and how often a run is looked at.
NO_VARIANT = {SEED, "train.name", "train.log_every_steps", "train.checkpoint_every_steps"}


@dataclass(frozen=True)
class Run:
    """A finished run. evaluations: (step, seconds since the command started, validation loss in nats per character).

    best_loss: the lowest of them, that of checkpoints/best.pt. end: what the run told last, see `Report.finished`.
    """

    folder: RunFolder
    config: Config
    evaluations: list[tuple[int, float, float]]
    tokens_per_s: float
    end: dict[str, Any]
    measured_on: tuple

    @property
    def seed(self) -> int:
        return self.config.train.seed

    @property
    def best_loss(self) -> float:
        return self.end["best_val_loss"]

    def seconds_to(self, target: float) -> float | None:
        """Until the first evaluation at the target or below; None where there is none."""
        return next((seconds for _, seconds, loss in self.evaluations if loss <= target), None)


@dataclass(frozen=True)
class Variant:
    """Runs of the same settings, by seed. choices: what sets it apart from the other variants."""

    choices: dict[str, str]
    runs: dict[int, Run]

    @property
    def label(self) -> str:
        return ", ".join(v if k == VARIANTS else f"{k}={v}" for k, v in self.choices.items()) or "all runs"

    @property
    def config(self) -> Config:
        return next(iter(self.runs.values())).config

    @property
    def losses(self) -> dict[int, float]:
        return {seed: run.best_loss for seed, run in self.runs.items()}


@dataclass(frozen=True)
class Found:
    """All that lies in some folders: variants in order, and by name the runs that are left out.

    repeated: those of the same settings and seed as one before them.
    """

    variants: list[Variant]
    unfinished: list[str]
    repeated: list[str]


def find_runs(paths: Sequence[Path]) -> Found:
    """The runs of run folders and of sweeps' folders. Raises ValueError where there is no finished run."""
    runs, unfinished = [], []
    for folder in dict.fromkeys(folder for path in paths for folder in _run_folders(path)):
        run = read_run(RunFolder(folder))
        runs += [run] if run else []
        unfinished += [] if run else [folder.name]
    if not runs:
        waiting = f"; not finished: {', '.join(unfinished)}" if unfinished else ""
        raise ValueError(f"{', '.join(map(str, paths))}: no finished run there{waiting}")
    plans = {path: plan for path in paths if (plan := _plan(path))}
    variants = _sort(runs, plans)
    kept = {run.folder.path for variant in variants for run in variant.runs.values()}
    repeated = [run.folder.path.name for run in runs if run.folder.path not in kept]
    return Found(variants, unfinished, repeated)


def read_run(folder: RunFolder) -> Run | None:
    """The run of a folder; None where it is not finished."""
    lines = folder.metrics.read_text(encoding="utf-8").splitlines() if folder.metrics.is_file() else []
    records = [json.loads(line) for line in lines if line.endswith("}")]  # the last one may still be being written
    if not records or not records[-1].get("finished") or records[-1]["best_val_loss"] is None:
        return None
    evaluations = [record for record in records if "val_loss" in record]
    rates = [record["tokens_per_s"] for record in records if "tokens_per_s" in record]
    return Run(
        folder,
        load_config(folder.config),
        [(record["step"], record["elapsed_s"], record["val_loss"]) for record in evaluations],
        statistics.harmonic_mean(rates) if rates else float("nan"),
        records[-1],
        tuple(evaluations[-1][name] for name in ("corpus", "val_characters", "val_context")),
    )


def _run_folders(path: Path) -> list[Path]:
    """The run folders that a path means, those of a sweep in the order of its plan."""
    if (path / "config.yaml").is_file():
        return [path]
    inside = sorted(file.parent for file in path.glob("*/config.yaml"))
    if not inside:
        if not path.is_dir():
            close = difflib.get_close_matches(path.name, [p.name for p in path.parent.glob("*/")], n=1)
            hint = f"did you mean {path.parent / close[0]}?" if close else "runs and sweeps are in runs/"
            raise ValueError(f"{path}: no such folder; {hint}")
        raise ValueError(f"{path}: the folder holds neither a run nor a sweep; name one in it")
    if plan := _plan(path):
        order = [point.name for point in plan.points]
        inside.sort(key=lambda folder: order.index(folder.name) if folder.name in order else len(order))
    return inside


def _plan(path: Path) -> Plan | None:
    """The plan of a sweep's folder; None for another one."""
    if not (path / PLAN_FILE).is_file():
        return None
    with naming(path / PLAN_FILE):
        return make_plan(read_settings(path / PLAN_FILE))


def effective(config: Config) -> Config:
    """The same for configs of the same network and training, whichever settings say it; seed and name left out."""
    model = config.model
    if isinstance(model.n_head, int):
        model = dataclasses.replace(model, head_size=model.layers[0].head_size, n_kv_head=model.layers[0].n_kv_head)
    return dataclasses.replace(_of_a_variant(config), model=model)


def _of_a_variant(config: Config) -> Config:
    """A config with what makes no variant, see NO_VARIANT, at the same value for all."""
    train = dataclasses.replace(config.train, seed=0, name=None, log_every_steps=1, checkpoint_every_steps=1)
    return dataclasses.replace(config, train=train)


def _sort(runs: list[Run], plans: dict[Path, Plan]) -> list[Variant]:
    """Runs of the same settings, and of the same name where a sweep names its variants, together."""
    names, told_by_name = {}, {}
    for path, plan in plans.items():
        for point in plan.points:
            if name := point.choices.get(VARIANTS):
                # Two sweeps may call different things by one name.
                names[path / point.name] = name if len(plans) == 1 else f"{path.name} {name}"
                told_by_name[names[path / point.name]] = {key for v in plan.variants.values() for key in v}
    groups: dict[tuple, dict[int, Run]] = {}
    for run in runs:
        sign = (_of_a_variant(run.config), names.get(run.folder.path))
        groups.setdefault(sign, {}).setdefault(run.seed, run)
    configs = [config for config, _ in groups]
    keys = [f"{section}.{name}" for section, values in to_dict(configs[0]).items() for name in values]
    # What a sweep varies is named, though only one of its variants may be finished yet.
    swept = {key for plan in plans.values() for key, values in plan.axes.items() if len(values) > 1}
    varied = [key for key in keys if key in swept or len({setting(config, key) for config in configs}) > 1]
    varied = [key for key in varied if key not in NO_VARIANT]
    variants = []
    for (config, name), by_seed in groups.items():
        told = told_by_name.get(name, set())
        choices = {VARIANTS: name} if name else {}
        choices |= {key.partition(".")[2]: spoken(setting(config, key)) for key in varied if key not in told}
        variants.append(Variant(choices, dict(sorted(by_seed.items()))))
    return variants
