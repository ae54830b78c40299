"""Read the records of a run."""

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from statistics import harmonic_mean
from typing import Any

from cli.errors import UserError, one_line
from data.files import is_locked
from training.config import Config
from training.config_file import build_config
from training.evaluation import Evaluation
from training.identity import identity_of
from training.runs.metrics import read_records
from training.runs.run_folder import RunFolder


@dataclass(frozen=True)
class Run:
    """A run with at least one evaluation.

    step: of the newest record. evaluations: (step, seconds since the command started, validation loss in nats per
    character). end: the last record of a finished run, see `RunLog.finished`; {} for an unfinished run. corpus: the
    name of the text of the evaluations. identity: see `identity_of`. measured_on: of the evaluations; losses are
    compared only if it is the same. choices: of a point of a sweep, without the seed. named: the settings for which the
    name of its variant stands.
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
    choices: dict[str, str] = field(default_factory=dict)
    named: Set[str] = frozenset()

    @property
    def measured_in_words(self) -> str:
        """What was measured, with the name of the text in place of its digest; another text may have the same name."""
        return re.sub("the text [0-9a-f]{16}", lambda _: self.corpus, self.measured_on)

    @property
    def name(self) -> str:
        """The name of its folder, which can be shown whatever its bytes are."""
        return one_line(self.folder.path.name)

    @property
    def best_loss(self) -> float:
        """The lowest validation loss, that of checkpoints/best.safetensors."""
        return min(loss for _, _, loss in self.evaluations)

    @property
    def megabytes(self) -> float | None:
        """The highest memory, or None if the run is not finished or the system does not report it."""
        return self.end["peak_memory_bytes"] / 1e6 if self.end.get("peak_memory_bytes") else None

    def seconds_to(self, target: float) -> float | None:
        """Return the time of the first evaluation at or below a loss, or None if there is none."""
        return next((seconds for _, seconds, loss in self.evaluations if loss <= target), None)

    @property
    def state(self) -> str:
        if self.end:
            return "finished"
        activity = "running" if is_locked(self.folder.path) else "stopped"
        return f"{activity} at step {self.step:,} of {self.config.train.max_steps:,}"


def read_run(folder: RunFolder) -> Run | None:
    """Return the run of a folder, or None if it has no validation loss yet."""
    return make_run(folder, read_records(folder.metrics) if folder.metrics.is_file() else [])


def make_run(folder: RunFolder, records: Sequence[Mapping[str, Any]], config: Config | None = None) -> Run | None:
    """Return the run with these metrics, or None if it has no validation loss yet.

    config: of a run in a packed sweep, whose records lack the settings; None: the settings that the run was trained
    with, whatever its config.yaml says now. Raises UserError if the settings or the origin are missing.
    """
    evaluations = [record for record in records if "val_loss" in record]
    if not evaluations:
        return None
    config, newest = config or build_config(_recorded(records, "settings", folder.path)), evaluations[-1]
    sizes = newest["val_characters"], newest["val_split_characters"], newest["val_context"]
    rates = [record["tokens_per_s"] for record in records if "tokens_per_s" in record]
    return Run(
        folder,
        config,
        records[-1]["step"],
        [(record["step"], record["elapsed_s"], record["val_loss"]) for record in evaluations],
        harmonic_mean(rates) if rates else float("nan"),
        dict(records[-1]) if records[-1].get("finished") else {},
        config.data.val_corpus or newest["corpus"],
        identity_of(config, _recorded(records, "origin", folder.path)),
        Evaluation(newest["val_loss"], *sizes).measured_on(newest["val_passage"]),
    )


def _recorded(records: Sequence[Mapping[str, Any]], name: str, path: Path) -> Any:
    """Return the newest value of a field. Raises UserError if no record of the run at this path has it."""
    values = [record[name] for record in records if name in record]
    if not values:
        raise UserError(f"{path}: its metrics lack the {name} of the run; report on it with the commit that trained it")
    return values[-1]
