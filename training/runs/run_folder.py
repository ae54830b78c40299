"""The folder of a run: settings, metrics, samples and checkpoints."""

import contextlib
import os
from collections.abc import Collection, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from cli.errors import UserError
from data.files import remove_partial_files, replace_text
from training.runs.checkpoint import Checkpoint, CheckpointError, Part, from_bytes, load_file, save_checkpoint

RUNS = Path("runs")
PATIENCE_S = 0.5  # `is_locked` of another process holds a lock for an instant


class RunFolder:
    """`runs/NAME/`: config.yaml, metrics.jsonl, samples.txt and the checkpoints.

    checkpoints/: latest.pt, previous.pt (the one before), best.pt, and the weights step-N.pt. has-saved.txt says that
    there are checkpoints, so that a run whose checkpoints were deleted never starts again from its beginning.

    A divided checkpoint has its tensors in checkpoints/parts/SAVE.RANK-of-SIZE.pt. latest.pt, written after them, says
    which save is complete.
    """

    def __init__(self, path: Path):
        self.path = path
        self.config = path / "config.yaml"
        self.metrics = path / "metrics.jsonl"
        self.samples = path / "samples.txt"
        self.latest = path / "checkpoints" / "latest.pt"
        self.previous = path / "checkpoints" / "previous.pt"
        self.best = path / "checkpoints" / "best.pt"
        self.parts = path / "checkpoints" / "parts"
        self.saved_note = path / "has-saved.txt"

    @classmethod
    def create(cls, name: str, config_yaml: str, *, root: Path = RUNS) -> "RunFolder":
        """Create a new folder: NAME or, if that exists, NAME-2, NAME-3, ...; no run is ever overwritten."""
        try:
            root.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise UserError(f"{root}: is not a folder, but runs are stored there; move or rename the file") from None
        number = 1
        while True:
            path = root / (name if number == 1 else f"{name}-{number}")
            try:
                path.mkdir()
                break
            except FileExistsError:
                number += 1
        run = cls(path)
        run.lay_out(config_yaml)
        return run

    def lay_out(self, config_yaml: str) -> None:
        """Write the files of a run that has not begun; `train.py --resume` starts it."""
        self.latest.parent.mkdir(parents=True, exist_ok=True)
        self.metrics.touch()
        self.samples.touch()
        self.write_config(config_yaml)  # last and atomically: a folder with a config is a run folder

    def check_new(self) -> None:
        """Raise UserError if this host has parts of checkpoints of an earlier run of this name."""
        if self.parts.exists():
            raise UserError(f"{self.parts}: has parts of another run; remove that run, or set another train.name")

    def write_config(self, config_yaml: str) -> None:
        replace_text(self.config, config_yaml)

    @classmethod
    def find(cls, path: Path, *, root: Path = RUNS) -> "RunFolder":
        """Return the run in a folder, or the run of a checkpoint. Raises CheckpointError if there is no run."""
        folder = path.parent.parent if path.is_file() and path.suffix == ".pt" else path
        if not (folder / "config.yaml").is_file():
            close = root / path.name
            hint = f"did you mean {close}?" if (close / "config.yaml").is_file() else f"run folders are in {root}/"
            raise CheckpointError(f"{path}: no such run folder; {hint}")
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

    def save(self, checkpoint: Checkpoint, *, is_best: bool = False) -> None:
        """Save latest.pt, after best.pt if the checkpoint is the best; the latest before becomes previous.pt."""
        save_checkpoint(checkpoint, *[self.best] * is_best, self.latest, keep=self.previous)
        if not self.saved_note.exists():
            replace_text(self.saved_note, "This run has saved checkpoints. It resumes only from one of them.\n")

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
                    whole.append(load_file(path))
                except CheckpointError as error:
                    damaged[path] = str(error)
            if whole and path == self.latest:
                break  # no other is newer
        if not whole:
            reasons = "; ".join(damaged.values()) or "its files are missing; start the run again with --config"
            raise CheckpointError(f"{self.path}: no checkpoint to resume from ({reasons})")
        warnings = []
        for path, reason in damaged.items():
            warnings.append(f"{reason}; it is now called {_set_aside(path).name}")
        newest = max(whole, key=lambda checkpoint: checkpoint.step)
        if not self.latest.exists():
            save_checkpoint(newest, self.latest)
        return newest, warnings

    def set_aside(self, save: str) -> None:
        """Rename the files that refer to a save of which a part is damaged or missing, to NAME.damaged."""
        for path, other in self.saves().items():
            if other == save:
                _set_aside(path)

    def part(self, part: Part) -> Path:
        """Return the file of a part of a divided checkpoint."""
        return self.parts / f"{part.save}.{part.rank}-of-{part.size}.pt"

    def load_part(self, part: Part) -> Checkpoint:
        """Return a part. Raises CheckpointError if it is damaged or another one, OSError if missing or unreadable."""
        path = self.part(part)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise FileNotFoundError(
                f"{path}: is missing; start each process on the host that has its part, or copy the part here"
            ) from None
        checkpoint = from_bytes(content, path)
        if checkpoint.part != part:
            raise CheckpointError(f"{path}: is another part than its name says ({checkpoint.part})")
        return checkpoint

    def saves(self) -> dict[Path, str]:
        """Return the saves to which latest, previous and best refer, if they are divided."""
        found = {}
        for path in (self.latest, self.previous, self.best):
            with contextlib.suppress(CheckpointError):
                if part := load_file(path).part:
                    found[path] = part.save
        return found

    def remove_parts(self, *, but_of: Collection[str]) -> None:
        """Remove parts of other saves, and of saves that were not completed. No process may be saving."""
        for path in self.parts.glob("step-*-of-*"):
            if path.name.partition(".")[0] not in but_of or path.suffix == ".part":
                with contextlib.suppress(OSError):
                    path.unlink()

    def kept(self, step: int) -> Path:
        """Return the file of the weights that `train.keep_checkpoints` keeps from a step."""
        return self.latest.with_name(f"step-{step}.pt")

    def all_kept(self) -> dict[int, Path]:
        """Return the files of the kept weights, by step, in the order of the steps."""
        files = self.latest.parent.glob("step-*.pt")
        numbers = {file.stem.removeprefix("step-"): file for file in files}
        return dict(sorted((int(number), file) for number, file in numbers.items() if number.isdecimal()))

    def add_sample(self, heading: str, text: str) -> None:
        with self.samples.open("a", encoding="utf-8", newline="") as file:
            file.write(f"--- {heading} ---\n{text}\n\n")

    def sizes(self) -> list[int]:
        """Return the sizes of metrics and samples in bytes; see `rewind`."""
        return [path.stat().st_size for path in (self.metrics, self.samples)]

    def remove_partial_files(self) -> None:
        """Remove partial files left by a process that was killed during a save."""
        for folder in (self.path, self.latest.parent):
            remove_partial_files(folder)

    def rewind(self, step: int, sizes: list[int]) -> None:
        """Go back to a step: truncate the metrics and samples to their sizes then, and remove weights kept later."""
        for path, size in zip((self.metrics, self.samples), sizes, strict=True):
            path.touch()
            if path.stat().st_size > size:
                os.truncate(path, size)
        for kept_step, path in self.all_kept().items():
            if kept_step > step:
                path.unlink()


def _set_aside(path: Path) -> Path:
    """Rename a damaged checkpoint, or the next save would keep it instead of an intact one."""
    return path.replace(path.with_suffix(".damaged"))


def find_checkpoint(path: Path | None, *, root: Path = RUNS) -> Path:
    """Return the checkpoint file for a file, a run folder (its best), or None (the best of the newest run).

    Raises CheckpointError if there is no checkpoint.
    """
    if path is None:
        runs = [RunFolder(file.parent) for depth in ("*", "*/*") for file in root.glob(f"{depth}/config.yaml")]
        files = [file for run in runs if (file := _best_or_latest(run))]
        if not files:
            raise CheckpointError(
                f"{root}/ contains no checkpoint yet; train first with python train.py --config "
                "configs/shakespeare.yaml, or give one with --checkpoint"
            )
        return max(files, key=lambda file: file.stat().st_mtime_ns)
    if path.is_dir():
        file = _best_or_latest(RunFolder(path))
        if file is None:
            inside = sorted(str(config.parent) for config in path.glob("*/config.yaml"))
            hint = f"; it contains runs, so give one of them, such as {inside[0]}" if inside else ""
            raise CheckpointError(f"{path}: the folder has no checkpoints/best.pt and no checkpoints/latest.pt{hint}")
        return file
    return path


def _best_or_latest(run: RunFolder) -> Path | None:
    return next((file for file in (run.best, run.latest, run.previous) if file.is_file()), None)
