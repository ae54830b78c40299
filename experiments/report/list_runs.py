"""List all runs of a folder: state, loss, time, and the settings in which they differ."""

from collections import Counter
from pathlib import Path

from cli.errors import UserError, explain
from cli.hints import PROJECT, to_paste
from experiments.formatting import in_columns
from experiments.report.runs import read_run
from experiments.sweep.values import spoken
from training.config_file import load_config
from training.identity import identity_of
from training.runs.run_folder import RUNS, RunFolder

WIDTH = 120  # characters of a line, at most


def list_runs(root: Path = RUNS) -> str:
    """Return a table of the runs and of the sweeps' runs in a folder, the newest first. Raises UserError if empty."""
    configs = [*root.glob("*/config.yaml"), *root.glob("*/*/config.yaml")]
    folders = sorted((file.parent for file in configs), key=_last_change, reverse=True)
    if not folders:
        train = to_paste("train.py", "--config", PROJECT / "configs/selmere.yaml")
        raise UserError(f"{root}/ contains no runs yet; train one with {train}")
    lines, settings = [], []
    for path in folders:
        shown = ["no evaluation yet", "", ""]
        try:
            if run := read_run(folder := RunFolder(path)):
                shown = [run.state, f"{run.best_loss:.4f} on {run.corpus}", f"{run.evaluations[-1][1]:.0f} s"]
            identity = run.identity if run else identity_of(load_config(folder.config), {})
        except (UserError, OSError) as error:
            shown, identity = ["unreadable", "", ""], {"error": explain(error)}
        lines.append([str(path.relative_to(root)), *shown])
        settings.append({key: spoken(value) for key, value in identity.items()})
    keys = dict.fromkeys(key for values in settings for key in values)
    usual = {key: Counter(values.get(key) for values in settings).most_common(1)[0][0] for key in keys}
    usual["error"] = None  # always shown
    for line, values in zip(lines, settings, strict=True):
        line.append(" ".join(f"{key}={value}" for key, value in values.items() if value != usual[key]))
    head = ["run", "state", "validation loss", "time", "settings that differ from those of most runs"]
    table = in_columns([head, *lines]).splitlines()
    return "\n".join(line if len(line) <= WIDTH else line[: WIDTH - 1] + "…" for line in table)


def _last_change(folder: Path) -> float:
    files = (folder / "config.yaml", folder / "metrics.jsonl")
    return max((file.stat().st_mtime for file in files if file.is_file()), default=0.0)
