"""Read runs and group them into variants: runs that differ only in the seed."""

import dataclasses
import difflib
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from cli.errors import UserError
from training.runs.metrics import read_records
from training.runs.run_folder import RunFolder
from training.settings.config import Config, TrainConfig
from training.settings.config_file import load_run_config, to_dict
from training.sweep.plan import SEED, Plan, setting
from training.sweep.sweep_folder import read_plan
from training.sweep.values import VARIANTS, spoken

# Settings that do not make a variant: the seed, the name, and how often a run logs and saves.
NO_VARIANT = {
    SEED,
    "train.name",
    "train.log_every_steps",
    "train.checkpoint_every_steps",
    "train.keep_checkpoints",
}


class Measured(NamedTuple):
    """What a validation loss is for: n_characters, spread evenly over the n_available of the split."""

    corpus: str
    n_characters: int
    n_available: int
    context: int
    split: tuple[float, ...]

    def __str__(self) -> str:
        which = "all" if self.n_characters == self.n_available else f"{self.n_characters:,} evenly spread ones of the"
        return (
            f"{which} {self.n_available:,} characters of the validation split of {self.corpus} (data.split="
            f"{list(self.split)}), context length {self.context}"
        )


@dataclass(frozen=True)
class Run:
    """A run with at least one evaluation.

    step: of the newest record. evaluations: (step, seconds since the command started, validation loss in nats per
    character). end: the last record of a finished run, see `RunLog.finished`; None for an unfinished run.
    measured_on: what the validation loss is for.
    """

    folder: RunFolder
    config: Config
    step: int
    evaluations: list[tuple[int, float, float]]
    tokens_per_s: float
    end: dict[str, Any] | None
    measured_on: Measured

    @property
    def seed(self) -> int:
        return self.config.train.seed

    @property
    def corpus(self) -> str:
        return self.measured_on.corpus

    @property
    def best_loss(self) -> float:
        """The lowest validation loss, that of checkpoints/best.pt."""
        return min(loss for _, _, loss in self.evaluations)

    @property
    def state(self) -> str:
        if self.end:
            return "finished"
        activity = "running" if self.folder.is_locked() else "stopped"
        return f"{activity} at step {self.step:,} of {self.config.train.max_steps:,}"

    def seconds_to(self, target: float) -> float | None:
        """Return the time to the first evaluation at or below the target, or None if no evaluation reached it."""
        return next((seconds for _, seconds, loss in self.evaluations if loss <= target), None)


@dataclass(frozen=True)
class Variant:
    """Runs with the same settings, by seed: either finished or unfinished runs.

    choices: the settings that distinguish it from the other variants.
    """

    choices: dict[str, str]
    runs: dict[int, Run]

    @property
    def label(self) -> str:
        label = ", ".join(v if k == VARIANTS else f"{k}={v}" for k, v in self.choices.items()) or "all runs"
        return label if self.is_finished else f"{label} (unfinished)"

    @property
    def is_finished(self) -> bool:
        return all(run.end for run in self.runs.values())

    @property
    def config(self) -> Config:
        return next(iter(self.runs.values())).config

    @property
    def losses(self) -> dict[int, float]:
        return {seed: run.best_loss for seed, run in self.runs.items()}


@dataclass(frozen=True)
class FoundRuns:
    """The runs in some folders: the variants in order, and the names of the runs that are left out.

    without_loss: runs before their first evaluation. repeated: runs with the same settings and seed as an earlier one.
    """

    variants: list[Variant]
    without_loss: list[str]
    repeated: list[str]


def find_runs(paths: Sequence[Path]) -> FoundRuns:
    """Read the runs of run folders and sweep folders. Raises UserError if no run has a loss."""
    runs, without_loss = [], []
    for folder in dict.fromkeys(folder for path in paths for folder in _run_folders(path)):
        run = read_run(RunFolder(folder))
        runs += [run] if run else []
        without_loss += [] if run else [folder.name]
    if not runs:
        raise UserError(
            f"{', '.join(map(str, paths))}: no run with a validation loss yet ({', '.join(without_loss)}); wait for "
            "the first evaluation"
        )
    plans = {path: plan for path in paths if (plan := read_plan(path))}
    variants = _sort(runs, plans)
    kept = {run.folder.path for variant in variants for run in variant.runs.values()}
    repeated = [run.folder.path.name for run in runs if run.folder.path not in kept]
    return FoundRuns(variants, without_loss, repeated)


def read_run(folder: RunFolder) -> Run | None:
    """Return the run of a folder, or None if it has no validation loss yet."""
    records = read_records(folder.metrics) if folder.metrics.is_file() else []
    evaluations = [record for record in records if "val_loss" in record]
    if not evaluations:
        return None
    newest, config = evaluations[-1], load_run_config(folder.config)
    measured = Measured(
        newest["corpus"],
        newest["val_characters"],
        newest.get("val_split_characters", newest["val_characters"]),  # older runs always evaluated on all
        newest["val_context"],
        tuple(round(part, 6) for part in config.data.split),  # runs of an earlier version computed 1 - 0.1
    )
    rates = [record["tokens_per_s"] for record in records if "tokens_per_s" in record]
    return Run(
        folder,
        config,
        records[-1]["step"],
        [(record["step"], record["elapsed_s"], record["val_loss"]) for record in evaluations],
        statistics.harmonic_mean(rates) if rates else float("nan"),
        records[-1] if records[-1].get("finished") else None,
        measured,
    )


def _run_folders(path: Path) -> list[Path]:
    """Return the run folders of a path; those of a sweep are in the order of its plan."""
    if (path / "config.yaml").is_file():
        return [path]
    inside = sorted(file.parent for file in path.glob("*/config.yaml"))
    if not inside:
        if not path.is_dir():
            close = difflib.get_close_matches(path.name, [p.name for p in path.parent.glob("*/")], n=1)
            hint = f"did you mean {path.parent / close[0]}?" if close else "runs and sweeps are in runs/"
            raise UserError(f"{path}: no such folder; {hint}")
        raise UserError(f"{path}: the folder contains neither a run nor a sweep; give the folder of a run or a sweep")
    if plan := read_plan(path):
        order = [point.name for point in plan.points]
        inside.sort(key=lambda folder: order.index(folder.name) if folder.name in order else len(order))
    return inside


def flat(config: Config) -> dict[str, Any]:
    """Return the settings that can make a variant, by section.name."""
    sections = to_dict(config).items()
    settings = {f"{section}.{name}": value for section, values in sections for name, value in values.items()}
    return {key: value for key, value in settings.items() if key not in NO_VARIANT}


def effective(config: Config) -> Config:
    """Return a normal form, equal for configs with the same model and training, whatever their seeds and names."""
    model = config.model
    if isinstance(model.n_head, int):
        model = dataclasses.replace(model, head_size=model.layers[0].head_size, n_kv_head=model.layers[0].n_kv_head)
    return dataclasses.replace(_of_a_variant(config), model=model)


def _of_a_variant(config: Config) -> Config:
    """Return the config with the settings of NO_VARIANT at a common value."""
    default = TrainConfig()
    names = [key.removeprefix("train.") for key in NO_VARIANT]
    train = dataclasses.replace(config.train, **{name: getattr(default, name) for name in names})
    return dataclasses.replace(config, train=train)


def _sort(runs: list[Run], plans: dict[Path, Plan]) -> list[Variant]:
    """Group runs by their settings and, in a sweep with named variants, by the variant's name."""
    names, named_keys = {}, {}
    for path, plan in plans.items():
        for point in plan.points:
            if name := point.choices.get(VARIANTS):
                # Two sweeps may use one name for different settings.
                names[path / point.name] = name if len(plans) == 1 else f"{path.name} {name}"
                named_keys[names[path / point.name]] = {key for v in plan.variants.values() for key in v}
    groups: dict[tuple, dict[int, Run]] = {}
    for run in runs:
        sign = (_of_a_variant(run.config), names.get(run.folder.path), bool(run.end))
        groups.setdefault(sign, {}).setdefault(run.seed, run)
    configs = [flat(config) for config, *_ in groups]
    # A sweep's axes appear in the labels even if only one variant is finished so far.
    swept = {key for plan in plans.values() for key, values in plan.axes.items() if len(values) > 1}
    varied = [key for key in configs[0] if key in swept or len({config[key] for config in configs}) > 1]
    variants = []
    for (config, name, _), by_seed in groups.items():
        implied = named_keys.get(name, set())
        choices = {VARIANTS: name} if name else {}
        choices |= {key.partition(".")[2]: spoken(setting(config, key)) for key in varied if key not in implied}
        variants.append(Variant(choices, dict(sorted(by_seed.items()))))
    return variants
