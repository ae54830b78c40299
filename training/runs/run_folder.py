"""The folder of a run: settings, metrics, samples and checkpoints."""

import contextlib
import dataclasses
import itertools
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cli.errors import UserError, explain
from cli.rules import check_folder_name
from data.files import exclusive, replace_text
from training.config_file import to_yaml
from training.runs.checkpoint import SUFFIX, Checkpoint, save_checkpoint
from training.runs.metrics import read_newest_record
from training.runtime import peak_memory_bytes
from training.state import TrainingError, TrainingState

RUNS = Path("runs")


class RunFolder:
    """`runs/NAME/`: config.yaml, metrics.jsonl, samples.txt and the checkpoints.

    checkpoints/: the latest, the previous one, the best, and the weights of the steps that are kept.

    Raises UserError if the folder of a run contains a link: it may come from a stranger, whose links lead anywhere.
    """

    def __init__(self, path: Path):
        self.path = path
        self.config = path / "config.yaml"
        self.metrics = path / "metrics.jsonl"
        self.samples = path / "samples.txt"
        self.error = path / "error.txt"  # why the last session failed, if it did
        self.checkpoints = path / "checkpoints"
        self.latest = self.checkpoints / f"latest{SUFFIX}"
        self.previous = self.checkpoints / f"previous{SUFFIX}"
        self.best = self.checkpoints / f"best{SUFFIX}"
        self._own_lock: os.stat_result | None = None  # of the file by which this process holds the folder
        if self.config.exists():
            refuse_links(path)
            refuse_links(self.checkpoints)

    @classmethod
    def create(cls, name: str, *, root: Path = RUNS) -> "RunFolder":
        """Create an empty folder: NAME or, if that exists, NAME-2, NAME-3, ...; no run is ever overwritten."""
        for path in numbered(root / name):
            root.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                path.mkdir()
                break
        return cls(path)

    def lay_out(self, config_yaml: str) -> None:
        """Write the files of a run that are missing, and its settings; `train.py --resume` can then start it."""
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        self.metrics.touch()
        self.samples.touch()
        replace_text(self.config, config_yaml)  # last and atomically: a folder with a config is a run folder

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes out, and leave an error in error.txt. Raises UserError if another one has the lock."""
        with exclusive(self.path, "is training this run"):
            self._own_lock = (self.path / "lock").stat()
            self.error.unlink(missing_ok=True)
            try:
                yield
            except Exception as error:
                with contextlib.suppress(OSError, TrainingError):
                    self.check_held()
                    replace_text(self.error, f"{explain(error)}\n")
                raise
            finally:
                self._own_lock = None

    def check_held(self) -> None:
        """Raise TrainingError if the folder that this process has locked is no longer there."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if not self._own_lock or os.path.samestat(self._own_lock, (self.path / "lock").stat()):
                return
        raise TrainingError(f"{self.path}: this folder or its lock was deleted or moved, so the run ends")

    def is_finished(self) -> bool:
        """Return whether the metrics end with the record of a finished run; a damaged last line is not one."""
        with contextlib.suppress(UserError):
            return bool(read_newest_record(self.metrics).get("finished"))
        return False

    @contextlib.contextmanager
    def session(self, state: TrainingState, changes: Sequence[str] = (), *, is_new: bool = True) -> Iterator[None]:
        """Write the settings, go back to the state's step, and record the run's identity if it is new or has changed.

        changes: the settings that have changed. What was logged and kept after this step is removed. Inside the
        context, an error of the machine becomes a TrainingError that says how to resume.
        """
        try:
            if is_new or changes or not (state.is_finished() and self.is_finished()):  # or there is nothing to do
                self.check_held()
                self.lay_out(to_yaml(state.config))
                cut_records(self.metrics, state.progress.step, state.progress.log_sizes[0])
                os.truncate(self.samples, min(self.samples.stat().st_size, state.progress.log_sizes[1]))
                for step, path in self.all_kept().items():
                    if step > state.progress.step:
                        path.unlink()
            if is_new or changes:
                self.record_identity(state, changes)
            yield
        except TrainingError:
            raise
        except (OSError, UserError) as error:
            self.check_held()  # a folder that is gone is the reason of other errors
            raise TrainingError(f"{explain(error)}; fix this, then resume with --resume {self.path}") from error

    def record_identity(self, state: TrainingState, changes: Sequence[str]) -> None:
        """Record what determines the run from here on, and save it: whatever happens, nothing of this is lost."""
        progress = state.progress
        record = {"step": progress.step, "elapsed_s": progress.elapsed_s, "corpus": state.corpus.name}
        record |= {"settings": dataclasses.asdict(state.config), "origin": state.origin}
        self.add_record(record | ({"changes": changes} if changes else {}))
        self.save(state, elapsed_s=progress.elapsed_s)

    def save(self, state: TrainingState, *, elapsed_s: float, is_best: bool = False) -> None:
        """Save the state as the latest checkpoint, after the best if it is that too; the latest becomes the previous.

        elapsed_s: the time of the run, over all sessions. Raises TrainingError if a number of the state is not finite.
        """
        progress = state.progress
        progress.elapsed_s = elapsed_s
        progress.peak_memory_bytes = max(progress.peak_memory_bytes, peak_memory_bytes(state.runtime.device))
        progress.log_sizes = [path.stat().st_size for path in (self.metrics, self.samples)]
        checkpoint = Checkpoint.of(state)
        self.check_held()
        if is_best:
            save_checkpoint(checkpoint, self.best)
        save_checkpoint(checkpoint, self.latest, keep=self.previous)

    def keep(self, state: TrainingState) -> None:
        """Keep the weights of this step if `train.keep_checkpoints` asks for it."""
        settings, step = state.config.train, state.progress.step
        if not settings.keep_checkpoints or state.progress.evaluation_due:
            return
        is_due = step in kept_steps(settings.keep_checkpoints, settings.max_steps) or state.is_finished()
        if is_due and not self.kept(step).exists():  # it does if the run is resumed at this step
            self.check_held()
            checkpoint = Checkpoint.of(state)
            weights = {f"model.{name}": x for name, x in checkpoint.weights.items()}  # enough to sample, not to resume
            save_checkpoint(dataclasses.replace(checkpoint, tensors=weights), self.kept(step))

    def kept(self, step: int) -> Path:
        """Return the file of the weights that are kept from a step."""
        return self.checkpoints / f"step-{step}{SUFFIX}"

    def all_kept(self) -> dict[int, Path]:
        """Return the files of the kept weights, by step, in the order of the steps."""
        files = self.checkpoints.glob(f"step-*{SUFFIX}")
        numbers = {file.stem.removeprefix("step-"): file for file in files}
        return dict(sorted((int(number), file) for number, file in numbers.items() if number.isdecimal()))

    def add_record(self, record: dict[str, Any]) -> None:
        """Append a record to the metrics."""
        self._append(self.metrics, json.dumps(record) + "\n")

    def add_sample(self, heading: str, text: str) -> None:
        self._append(self.samples, f"--- {heading} ---\n{text}\n\n")

    def _append(self, path: Path, text: str) -> None:
        self.check_held()
        with path.open("ab") as file:
            file.write(text.encode())


def refuse_links(folder: Path) -> None:
    """Raise UserError if a folder contains anything but files and folders; the folder itself may be a link."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            advice = "replace it with a file or folder; only the folder of a run may be a link"
            raise UserError(f"{path} is a link, a pipe or a device, which may lead out of the run; {advice}")


def numbered(path: Path) -> Iterator[Path]:
    """Yield NAME, NAME-2, NAME-3, ...: the folders of which a new run takes the first that is free."""
    check_folder_name("train.name", path.name)  # it may be the name of the config file
    yield path
    for number in itertools.count(2):
        yield path.with_name(f"{path.name}-{number}")


def cut_records(path: Path, step: int, n_bytes: int) -> None:
    """Cut the file after the last record that ends within n_bytes and is of this step or an earlier one.

    n_bytes alone may lie inside a record if someone has removed a damaged line.
    """
    size = 0
    for record in re.finditer(rb'"step": ?(\d+).*\n', path.read_bytes()[:n_bytes]):
        if int(record[1]) <= step:
            size = record.end()
    os.truncate(path, size)


def kept_steps(n: int, max_steps: int) -> list[int]:
    """Return the n steps whose weights a run keeps: 0, 1, ..., max_steps, each a fixed multiple of the one before.

    Heads form early, so most of the steps lie there. If rounding would make two steps equal, the
    second is one later. A run with fewer steps keeps them all.
    """
    steps = [0, 1][:n]
    while len(steps) < min(n, max_steps + 1):
        ratio = (max_steps / steps[-1]) ** (1 / (n - len(steps)))
        steps.append(max(steps[-1] + 1, round(steps[-1] * ratio)))
    return steps
