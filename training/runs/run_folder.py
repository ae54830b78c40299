"""The folder of a run: settings, metrics, samples and checkpoints."""

import contextlib
import difflib
import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tqdm import tqdm

from cli.errors import UserError, explain, one_line, optional_library
from cli.hints import shortened
from cli.rules import check_folder_name
from data.files import exclusive, remove_partial_files, replace_text
from data.sources import BUNDLED
from training.runs.checkpoint import SUFFIX, Checkpoint, CheckpointError, load_checkpoint, save_checkpoint
from training.runs.metrics import append_record, cut_records, read_newest_record
from training.state import TrainingError

RUNS = Path("runs")
EXPORTED = f"model{SUFFIX}"  # in the folder of an exported model
BUNDLED_MODEL = BUNDLED / f"selmere{SUFFIX}"  # used before the first run; data/README.md says how it was made


class RunFolder:
    """`runs/NAME/`: config.yaml, metrics.jsonl, samples.txt and the checkpoints.

    checkpoints/: the latest, the previous one, the best, and the weights of the steps that are kept.

    writes: False in a process that trains the run together with the one that writes to its folder.
    """

    def __init__(self, path: Path, *, writes: bool = True):
        self._path, self.writes = path, writes
        self._descriptor: int | None = None  # of the folder while it is locked

    @property
    def path(self) -> Path:
        """The path, which follows the folder if it is moved while locked. Raises TrainingError if it is deleted."""
        if self._descriptor is None:
            return self._path
        for path in (self._path, Path(f"/proc/self/fd/{self._descriptor}").resolve()):  # elsewhere than on Linux: none
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                if os.path.samestat(path.stat(), os.fstat(self._descriptor)):
                    break
        else:
            raise TrainingError(f"{self._path}: this folder was deleted or moved away during training, so the run ends")
        if path != self._path:
            before, self._path = self._path, Path(shortened(path))
            if self.writes:
                tqdm.write(f"train.py: {one_line(f'{before} is now {self._path}')}; the run goes on there", sys.stderr)
        return self._path

    config = property(lambda self: self.path / "config.yaml")
    metrics = property(lambda self: self.path / "metrics.jsonl")
    samples = property(lambda self: self.path / "samples.txt")
    error = property(lambda self: self.path / "error.txt")  # why the last session failed, if it did
    checkpoints = property(lambda self: self.path / "checkpoints")
    latest = property(lambda self: self.checkpoints / f"latest{SUFFIX}")
    previous = property(lambda self: self.checkpoints / f"previous{SUFFIX}")
    best = property(lambda self: self.checkpoints / f"best{SUFFIX}")

    @classmethod
    def create(cls, name: str, config_yaml: str, *, root: Path = RUNS) -> "RunFolder":
        """Create a new folder: NAME or, if that exists, NAME-2, NAME-3, ...; no run is ever overwritten."""
        for path in numbered(root / name):
            root.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                path.mkdir()
                break
        run = cls(path)
        run.lay_out(config_yaml)
        return run

    def lay_out(self, config_yaml: str) -> None:
        """Write the files of a run that are missing, and its settings; `train.py --resume` can then start it."""
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        self.metrics.touch()
        self.samples.touch()
        replace_text(self.config, config_yaml)  # last and atomically: a folder with a config is a run folder

    @classmethod
    def find(cls, path: Path, *, writes: bool = True, root: Path = RUNS) -> "RunFolder":
        """Return the run in a folder. Raises CheckpointError if there is none."""
        if not (path / "config.yaml").is_file():
            problem = "is not a run folder" if path.exists() else "no such run folder"
            raise CheckpointError(f"{path}: {problem}; {_hint(path, root)}")
        return cls(path, writes=writes)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes out of the folder, follow it if it is moved, and leave an error in its error.txt.

        Of the processes of one run, the first that fails writes that file. Raises UserError if the folder is locked.
        """
        with exclusive(self.path, "is training this run") if self.writes else contextlib.nullcontext():
            self.error.unlink(missing_ok=True)
            self._descriptor = os.open(self.path, os.O_RDONLY) if os.name == "posix" else None
            try:
                yield
            except Exception as error:
                with contextlib.suppress(OSError, UserError), self._held() as run, run.error.open("xb") as file:
                    file.write(f"{explain(error)}\n".encode())
                raise
            finally:
                if self._descriptor is not None:
                    os.close(self._descriptor)
                    self._descriptor = None

    @contextlib.contextmanager
    def _held(self, written: str = "") -> Iterator["RunFolder"]:
        """Yield the folder by its descriptor, if possible: whoever writes there does not notice that it is moved.

        written: the file that an error of the system is about if it names none, as that of a full disk.
        """
        path, held = self.path, Path(f"/proc/self/fd/{self._descriptor}")
        try:
            yield RunFolder(held if held.exists() else path)
        except OSError as error:
            name = str(error.filename2 or error.filename or path / written)
            raise OSError(error.errno, error.strerror, name.replace(str(held), str(self.path))) from error

    def is_finished(self) -> bool:
        """Return whether the metrics end with the record of a finished run; a damaged last line is not one."""
        with contextlib.suppress(UserError):
            return bool(read_newest_record(self.metrics).get("finished"))
        return False

    def begin_session(self, config_yaml: str, step: int, log_sizes: list[int]) -> None:
        """Write the settings and go back to a step.

        log_sizes: the sizes of metrics and samples at that step, to which they are cut. Weights kept later are removed.
        """
        if not self.writes:
            return
        with self._held() as run:
            run.lay_out(config_yaml)
            cut_records(run.metrics, step, log_sizes[0])
            os.truncate(run.samples, min(run.samples.stat().st_size, log_sizes[1]))
            for kept_step, path in run.all_kept().items():
                if kept_step > step:
                    path.unlink()

    def save(self, checkpoint: Checkpoint, *, is_best: bool = False) -> None:
        """Save the latest checkpoint, after the best if it is that too; the latest before becomes the previous one."""
        if self.writes:
            with self._held() as run:
                if is_best:
                    save_checkpoint(checkpoint, run.best)
                save_checkpoint(checkpoint, run.latest, keep=run.previous)

    def load_newest(self) -> tuple[Checkpoint | None, list[str]]:
        """Return the newest intact checkpoint, or None if the run has not begun, and a warning for each damaged one.

        A damaged one is renamed to NAME.damaged, so that the next save keeps an intact one as the previous. If the
        latest is missing, the returned one takes its place. Raises CheckpointError if the run has begun and no
        checkpoint is intact: a run never silently starts from scratch.
        """
        if self.writes:
            for folder in (self.path, self.checkpoints):
                remove_partial_files(folder)  # of a process that was killed
        intact, damaged = [], {}
        for path in filter(Path.exists, (self.latest, self.previous, self.best)):
            try:
                intact.append(load_checkpoint(path))
            except CheckpointError as error:
                damaged[path] = str(error)
            if intact and path == self.latest:
                break  # the others replace a damaged one
        if not intact:
            if not damaged and not read_newest_record(self.metrics).get("step"):
                return None, []
            reasons = "; ".join(damaged.values()) or "its files are missing"
            raise CheckpointError(
                f"{self.path}: no checkpoint to resume from ({reasons}); start the run again with --config"
            )
        newest = max(intact, key=lambda checkpoint: checkpoint.step)
        if self.writes:
            for path in damaged:
                path.replace(path.with_suffix(".damaged"))
            if not self.latest.exists():
                save_checkpoint(newest, self.latest)
        resumed = f"resuming from step {newest.step:,}"
        return newest, [f"{why}; it is now called {path.stem}.damaged; {resumed}" for path, why in damaged.items()]

    def keep(self, checkpoint: Checkpoint) -> None:
        """Keep the weights of a step; see `train.keep_checkpoints`."""
        if self.writes:
            with self._held() as run:
                save_checkpoint(checkpoint, run.kept(checkpoint.step))

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
        if self.writes:
            with self._held("metrics.jsonl") as run:
                append_record(run.metrics, record)

    def add_sample(self, heading: str, text: str) -> None:
        if self.writes:
            with self._held("samples.txt") as run, run.samples.open("ab") as file:
                file.write(f"--- {heading} ---\n{text}\n\n".encode())

    def log_sizes(self) -> list[int]:
        """Return the sizes of metrics and samples in bytes; see `begin_session`."""
        return [path.stat().st_size for path in (self.metrics, self.samples)]


def numbered(path: Path) -> Iterator[Path]:
    """Yield NAME, NAME-2, NAME-3, ...: the folders of which a new run takes the first that is free."""
    check_folder_name("train.name", path.name)  # it may be the name of the config file
    yield path
    for number in itertools.count(2):
        yield path.with_name(f"{path.name}-{number}")


def open_checkpoint(path: Path | None) -> tuple[Path, Checkpoint]:
    """Return the file that `find_checkpoint` finds, and its content. Raises CheckpointError if it cannot be read."""
    path = find_checkpoint(path)
    return path, load_checkpoint(path)


def find_checkpoint(path: Path | None, *, root: Path = RUNS) -> Path:
    """Return the checkpoint for a file, the folder of a run (its best) or of an exported model, hf:USER/NAME, or None.

    None stands for the best checkpoint of all runs that was saved last or, before the first run, the bundled model.
    Raises UserError if there is no checkpoint.
    """
    if path is None:
        folders = [file.parent for depth in ("*", "*/*") for file in root.glob(f"{depth}/config.yaml")]
        files = [file for folder in folders if (file := checkpoint_in(folder))]
        return max(files, key=lambda file: file.stat().st_mtime_ns, default=BUNDLED_MODEL)
    if path.as_posix().startswith("hf:"):
        return _download(path.as_posix())
    if not path.exists():
        raise CheckpointError(f"{path}: no such run or checkpoint; {_hint(path, root)}")
    if not path.is_dir():
        return path
    if file := checkpoint_in(path):
        return file
    raise CheckpointError(f"{path}: the folder has no checkpoints/best{SUFFIX}; {_hint(path, root)}")


def _download(name: str) -> Path:
    """Return the local copy of the model hf:USER/NAME. Raises UserError if it is neither cached nor available."""
    hub = optional_library("huggingface_hub", name)
    try:
        return Path(hub.hf_hub_download(name.removeprefix("hf:"), EXPORTED))
    except Exception as error:  # of the library, the network or the Hub
        reason = str(error).strip().partition("\n")[0]
        raise UserError(f"{name}: cannot be downloaded: {type(error).__name__}: {reason}") from None


def checkpoint_in(folder: Path) -> Path | None:
    """Return the best checkpoint of a run, or else the newest, or the exported model in a folder; None without any."""
    run = RunFolder(folder)
    return next(filter(Path.is_file, (run.best, run.latest, run.previous, folder / EXPORTED)), None)


def _hint(path: Path, root: Path) -> str:
    if inside := sorted(path.glob("*/config.yaml")):
        return f"it contains runs, so give one of them, such as {inside[0].parent}"
    if path.parent.name == "checkpoints":
        return f"give its run, {path.parent.parent}"
    if (path / "config.yaml").is_file():
        return "train its run first"
    close = difflib.get_close_matches(path.name, [config.parent.name for config in root.glob("*/config.yaml")], n=1)
    return f"did you mean {root / close[0]}?" if close else f"run folders are in {root}/"
