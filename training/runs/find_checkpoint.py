"""Find a run, and the checkpoint that a path or nothing stands for."""

import difflib
from pathlib import Path

from data.sources import BUNDLED
from training.runs.checkpoint import SUFFIX, CheckpointError
from training.runs.run_folder import RUNS, RunFolder

EXPORTED = f"model{SUFFIX}"  # in the folder of an exported model
BUNDLED_MODEL = BUNDLED / f"selmere{SUFFIX}"  # used before the first run; data/README.md says how it was made


def find_checkpoint(path: Path | None) -> Path:
    """Return the checkpoint for a file, the folder of a run (its best) or of an exported model, or None.

    None stands for the `best` that was saved last in any run; if no run has one, for the newest checkpoint; before the
    first run, for the bundled model. Raises UserError if there is no checkpoint.
    """
    if path is None:
        folders = [file.parent for depth in ("*", "*/*") for file in RUNS.glob(f"{depth}/config.yaml")]
        files = [file for folder in folders if (file := checkpoint_in(folder))]
        # A run that has only just begun has no best checkpoint, and its latest is noise.
        return max(files, key=lambda file: (file.stem == "best", file.stat().st_mtime_ns), default=BUNDLED_MODEL)
    if not path.exists():
        raise CheckpointError(f"{path}: no such run or checkpoint; {_hint(path)}")
    if not path.is_dir():
        return path
    if file := checkpoint_in(path):
        return file
    raise CheckpointError(f"{path}: the folder has no checkpoints/best{SUFFIX}; {_hint(path)}")


def checkpoint_in(folder: Path) -> Path | None:
    """Return the best checkpoint of a run, or else the newest, or the exported model in a folder; None without any."""
    run = RunFolder(folder)
    return next(filter(Path.is_file, (run.best, run.latest, run.previous, folder / EXPORTED)), None)


def find_run(path: Path) -> RunFolder:
    """Return the run in a folder. Raises CheckpointError if there is none."""
    if not (path / "config.yaml").is_file():
        problem = "is not a run folder" if path.exists() else "no such run folder"
        raise CheckpointError(f"{path}: {problem}; {_hint(path)}")
    return RunFolder(path)


def _hint(path: Path) -> str:
    """Return what to do if a path is no run."""
    if inside := sorted(path.glob("*/config.yaml")):
        return f"it contains runs, so give one of them, such as {inside[0].parent}"
    if path.name == "checkpoints":
        return f"give its run, {path.parent}"
    close = difflib.get_close_matches(path.name, [config.parent.name for config in RUNS.glob("*/config.yaml")], n=1)
    return f"did you mean {RUNS / close[0]}?" if close else f"run folders are in {RUNS}/"
