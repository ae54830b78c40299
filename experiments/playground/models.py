"""The models of a playground: those of the checkpoints of the runs that it was started with."""

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from cli.errors import UserError
from experiments.heads.measures import HeadMeasures
from experiments.playground.reader import Reader
from training.runs.metrics import read_records
from training.runs.run_folder import RunFolder
from training.trained_model import TrainedModel, load_model

OPENING = 160  # characters of the validation split that the page begins with


class Model:
    """One column of the page: a run whose checkpoints can be chosen, or a single checkpoint."""

    def __init__(self, trained: TrainedModel):
        self.run = RunFolder(trained.run_folder) if trained.run_folder else None
        self.name, self.path = trained.name, trained.path
        self.changed_ns = self.path.stat().st_mtime_ns
        self.reader = Reader(trained)
        try:
            opening = trained.opening(min(OPENING, trained.model.config.block_size))
        except (UserError, OSError):  # the text is not on this machine
            opening = ""
        self.opening = opening.encode("utf-8", "ignore").decode()  # without a part of a character

    def checkpoints(self) -> dict[str, Path]:
        """Return the files that the page may ask for, by the names that it uses."""
        if self.run is None:
            return {self.path.stem: self.path}
        kept = {f"step {step:,}": file for step, file in self.run.all_kept().items()}
        named = {"best": self.run.best, "latest": self.run.latest} | kept
        return {name: file for name, file in named.items() if file.is_file()}

    def choose(self, name: str) -> None:
        """Use another checkpoint. Raises UserError if there is none of this name."""
        if (path := self.checkpoints().get(name)) is None:
            raise UserError(f"there is no checkpoint called {name!r:.40}")
        changed_ns = path.stat().st_mtime_ns
        self.reader = Reader(load_model(path, str(self.reader.trained.runtime.device)))
        self.path, self.changed_ns = path, changed_ns

    def state(self) -> dict[str, Any]:
        """Return what the page shows besides the text; of the new weights, if the run has replaced the checkpoint."""
        for name, path in self.checkpoints().items():
            if path == self.path and path.stat().st_mtime_ns != self.changed_ns:
                self.choose(name)
        checkpoint, config = self.reader.trained.checkpoint, self.reader.model.config
        records = read_records(self.run.metrics) if self.run and self.run.metrics.is_file() else []
        files, text, n_head = self.checkpoints(), Path(checkpoint.corpus["name"]).name, str(config.n_head).strip("(),")
        return {
            "name": self.name,
            "step": checkpoint.step,
            "checkpoints": list(files),
            "chosen": next((name for name, file in files.items() if file == self.path), ""),
            "parts": [str(part) for part in self.reader.parts],
            "opening": self.opening,
            "unit": self.reader.trained.vocabulary.unit,
            "measured_on": [text, config.block_size],
            "about": f"{config.n_layer} layers of {n_head} heads, width {config.n_embd}, trained on {text}",
            "train_loss": [(each["step"], each["train_loss"]) for each in records if "train_loss" in each],
            "val_loss": [(each["step"], each["val_loss"]) for each in records if "val_loss" in each],
        }


def answers(models: Sequence[Model], text: str, measures: Sequence[HeadMeasures] = ()) -> dict[str, Any]:
    """Return what a page without a server shows. measures: of the heads of each model, for their roles."""
    pairs = zip_longest(models, measures)
    shown = [model.reader.read(text) | model.reader.look_inside(text, measures=each) for model, each in pairs]
    return {"models": [model.state() | {"opening": text} for model in models], "shown": shown}
