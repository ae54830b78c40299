"""The folder of a run: settings, metrics, samples and checkpoints."""

import contextlib
import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from cli.errors import UserError
from data.files import remove_partial_files, replace_text
from training.runs.checkpoint import Checkpoint, CheckpointError, load_checkpoint, save_checkpoint
from training.runs.metrics import append_record, read_newest_record
from training.runs.portable import WEIGHTS, read_portable

RUNS = Path("runs")
PATIENCE_S = 0.5  # `is_locked` of another process holds a lock for an instant


class RunFolder:
    """`runs/NAME/`: config.yaml, metrics.jsonl, samples.txt and the checkpoints.

    checkpoints/: latest.pt, previous.pt (the one before), best.pt, and the weights step-N.pt. has-saved.txt says that
    there are checkpoints, so that a run whose checkpoints were deleted never starts again from its beginning. Until the
    first checkpoint, new.txt says that `create` made the folder; see `removed_if_unused`.

    writes: False in processes that train the run together with the one that writes to its folder.
    """

    def __init__(self, path: Path, *, writes: bool = True):
        self.path, self.writes = path, writes
        self.config = path / "config.yaml"
        self.metrics = path / "metrics.jsonl"
        self.samples = path / "samples.txt"
        self.error = path / "error.txt"  # why the last session failed, if it did
        self.latest = path / "checkpoints" / "latest.pt"
        self.previous = path / "checkpoints" / "previous.pt"
        self.best = path / "checkpoints" / "best.pt"
        self.saved_note = path / "has-saved.txt"
        self.new_note = path / "new.txt"

    @classmethod
    def create(cls, name: str, config_yaml: str, *, root: Path = RUNS) -> "RunFolder":
        """Create a new folder: NAME or, if that exists, NAME-2, NAME-3, ...; no run is ever overwritten."""
        try:
            root.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise UserError(f"{root}: is not a folder, but runs are stored there; move or rename the file") from None
        for path in numbered(root / name):
            with contextlib.suppress(FileExistsError):
                path.mkdir()
                break
        run = cls(path)
        run.new_note.write_text("If this run fails before it logs or saves anything, its folder is removed.\n")
        run.lay_out(config_yaml)
        return run

    def lay_out(self, config_yaml: str) -> None:
        """Write the files of a run that has not begun; `train.py --resume` starts it."""
        self.latest.parent.mkdir(parents=True, exist_ok=True)
        self.metrics.touch()
        self.samples.touch()
        replace_text(self.config, config_yaml)  # last and atomically: a folder with a config is a run folder

    @classmethod
    def find(cls, path: Path, *, root: Path = RUNS) -> "RunFolder":
        """Return the run in a folder, or that of its latest checkpoint. Raises CheckpointError if there is no run."""
        folder = path.parent.parent if path.is_file() and path.suffix == ".pt" else path
        if not (folder / "config.yaml").is_file():
            problem = "is not a run folder" if path.exists() else "no such run folder"
            raise CheckpointError(f"{path}: {problem}; {_hint(path, root)}")
        if folder != path and path.name != "latest.pt":
            raise CheckpointError(
                f"{path}: give its run, {folder}, which continues from the newest checkpoint; "
                "--config and --from start a new run from this one"
            )
        return cls(folder)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder against other processes; the lock of a dead process is released.

        Raises CheckpointError if another process is training this run.
        """
        try:
            held = FileLock(self.path / "lock").acquire(timeout=PATIENCE_S)
        except Timeout:
            raise CheckpointError(
                f"{self.path}: another process is training this run; wait for it or stop it"
            ) from None
        with held:
            yield

    def is_locked(self) -> bool:
        """Return whether a process is training this run."""
        try:
            with self.lock():
                return False
        except CheckpointError:
            return True

    def is_finished(self) -> bool:
        """Return whether the metrics end with the record of a finished run."""
        return bool(read_newest_record(self.metrics).get("finished"))

    @contextlib.contextmanager
    def removed_if_unused(self) -> Iterator[None]:
        """Remove the folder after an error inside the context if it is new and nothing was logged or saved."""
        try:
            yield
        except BaseException:
            if self.new_note.exists() and not self.has_saved() and not any(self.log_sizes()):
                shutil.rmtree(self.path, ignore_errors=True)
                with contextlib.suppress(OSError):
                    self.path.parent.rmdir()  # if there is no other run
            raise

    def begin_session(self, config_yaml: str, step: int, log_sizes: list[int]) -> None:
        """Write the settings, remove what a killed process left, and go back to a step.

        log_sizes: the sizes of metrics and samples at that step, to which the files are cut. Weights kept later are
        removed.
        """
        if not self.writes:
            return
        replace_text(self.config, config_yaml)
        for folder in (self.path, self.latest.parent):
            remove_partial_files(folder)
        for path, size in zip((self.metrics, self.samples), log_sizes, strict=True):
            path.touch()
            if path.stat().st_size > size:
                os.truncate(path, size)
        for kept_step, path in self.all_kept().items():
            if kept_step > step:
                path.unlink()

    def save(self, checkpoint: Checkpoint, *, is_best: bool = False) -> None:
        """Save latest.pt, after best.pt if the checkpoint is the best; the latest before becomes previous.pt."""
        if not self.writes:
            return
        save_checkpoint(checkpoint, *[self.best] * is_best, self.latest, keep=self.previous)
        if not self.saved_note.exists():
            replace_text(self.saved_note, "This run has saved checkpoints. It resumes only from one of them.\n")
            self.new_note.unlink(missing_ok=True)

    def has_saved(self) -> bool:
        """Return whether the run has ever saved a checkpoint, which may be lost."""
        return self.has_checkpoints() or self.saved_note.exists()

    def has_checkpoints(self) -> bool:
        return any(path.exists() for path in (self.latest, self.previous, self.best))

    def load_newest(self) -> tuple[Checkpoint, list[str]]:
        """Return the newest intact checkpoint and a warning for each damaged one.

        A damaged one is renamed to NAME.damaged. If that was the latest, the returned one is saved as the latest.
        Raises CheckpointError if no checkpoint is intact: a run never silently starts from scratch.
        """
        whole, damaged = [], {}
        for path in (self.latest, self.previous, self.best):
            if path.exists():
                try:
                    whole.append(load_checkpoint(path))
                except CheckpointError as error:
                    damaged[path] = str(error)
            if whole and path == self.latest:
                break  # no other is newer
        if not whole:
            reasons = "; ".join(damaged.values()) or "its files are missing; start the run again with --config"
            raise CheckpointError(f"{self.path}: no checkpoint to resume from ({reasons})")
        warnings = []
        for path, reason in damaged.items():  # renamed, so that the next save keeps an intact checkpoint instead
            warnings.append(f"{reason}; it is now called {path.replace(path.with_suffix('.damaged')).name}")
        newest = max(whole, key=lambda checkpoint: checkpoint.step)
        if not self.latest.exists():
            save_checkpoint(newest, self.latest)
        return newest, warnings

    def keep(self, checkpoint: Checkpoint) -> None:
        """Keep the weights of a step; see `train.keep_checkpoints`."""
        if self.writes:
            save_checkpoint(checkpoint, self.kept(checkpoint.step))

    def kept(self, step: int) -> Path:
        """Return the file of the weights that are kept from a step."""
        return self.latest.with_name(f"step-{step}.pt")

    def all_kept(self) -> dict[int, Path]:
        """Return the files of the kept weights, by step, in the order of the steps."""
        files = self.latest.parent.glob("step-*.pt")
        numbers = {file.stem.removeprefix("step-"): file for file in files}
        return dict(sorted((int(number), file) for number, file in numbers.items() if number.isdecimal()))

    def add_record(self, record: dict[str, Any]) -> None:
        """Append a record to the metrics."""
        if self.writes:
            append_record(self.metrics, record)

    def add_sample(self, heading: str, text: str) -> None:
        if not self.writes:
            return
        with self.samples.open("a", encoding="utf-8", newline="") as file:
            file.write(f"--- {heading} ---\n{text}\n\n")

    def log_sizes(self) -> list[int]:
        """Return the sizes of metrics and samples in bytes; see `begin_session`."""
        if not self.writes:
            return [0, 0]
        return [path.stat().st_size for path in (self.metrics, self.samples)]


def numbered(path: Path) -> Iterator[Path]:
    """Yield NAME, NAME-2, NAME-3, ...: the folders of which a new run takes the first that is free."""
    yield path
    for number in itertools.count(2):
        yield path.with_name(f"{path.name}-{number}")


def open_checkpoint(path: Path | None) -> tuple[Path, Checkpoint]:
    """Return the file that `find_checkpoint` finds, and its content. Raises CheckpointError if it cannot be read."""
    path = find_checkpoint(path)
    return path, read_portable(path) if path.name == WEIGHTS else load_checkpoint(path)


def find_checkpoint(path: Path | None, *, root: Path = RUNS) -> Path:
    """Return the file of weights for a file, a run folder (its best), or None (the best of the newest run).

    The folder can also be a portable one: see `read_portable`.

    Raises CheckpointError if there is no checkpoint.
    """
    if path is None:
        runs = [RunFolder(file.parent) for depth in ("*", "*/*") for file in root.glob(f"{depth}/config.yaml")]
        files = [file for run in runs if (file := _best_or_latest(run))]
        if not files:
            raise CheckpointError(
                f"{root.resolve()}/ contains no checkpoint yet; train first with python train.py --config "
                "configs/selmere.yaml, or give one with --checkpoint"
            )
        return max(files, key=lambda file: file.stat().st_mtime_ns)
    if not path.exists():
        raise CheckpointError(f"{path}: no such run or checkpoint; {_hint(path, root)}")
    if path.is_dir():
        file = path / WEIGHTS if (path / WEIGHTS).is_file() else _best_or_latest(RunFolder(path))
        if file is None:
            missing = "has no checkpoints/best.pt and no checkpoints/latest.pt"
            raise CheckpointError(f"{path}: the folder {missing}; {_hint(path, root)}")
        return file
    return path


def _hint(path: Path, root: Path) -> str:
    if inside := sorted(path.glob("*/config.yaml")):
        return f"it contains runs, so give one of them, such as {inside[0].parent}"
    close = root / path.name
    if close == path and path.exists():
        return "train its run first"
    return f"did you mean {close}?" if (close / "config.yaml").is_file() else f"run folders are in {root}/"


def _best_or_latest(run: RunFolder) -> Path | None:
    return next((file for file in (run.best, run.latest, run.previous) if file.is_file()), None)
