"""List all runs of a folder: state, loss, time, and the settings in which they differ."""

from collections import Counter
from pathlib import Path

from cli.errors import UserError, explain
from experiments.formatting import in_columns
from experiments.report.runs import NO_VARIANT, read_run
from training.runs.run_folder import RUNS, RunFolder
from training.settings.config_file import load_run_config, to_dict
from training.sweep.plan import SEED
from training.sweep.values import spoken

HIDDEN = NO_VARIANT - {SEED}


def list_runs(root: Path = RUNS) -> str:
    """Return a table of the runs and of the sweeps' runs in a folder, the newest first. Raises UserError if empty."""
    configs = [*root.glob("*/config.yaml"), *root.glob("*/*/config.yaml")]
    folders = sorted((RunFolder(file.parent) for file in configs), key=_last_change, reverse=True)
    if not folders:
        raise UserError(f"{root}/ contains no runs yet; train one with python train.py --config configs/selmere.yaml")
    settings = {folder: _settings(folder) for folder in folders}
    keys = dict.fromkeys(key for values in settings.values() for key in values)
    usual = {key: Counter(values.get(key) for values in settings.values()).most_common(1)[0][0] for key in keys}
    lines = [["run", "state", "validation loss", "time", "settings that differ from those of most runs"]]
    for folder, values in settings.items():
        differing = " ".join(f"{key}={value}" for key, value in values.items() if value != usual[key])
        try:
            run = read_run(folder)
            state = [run.state, f"{run.best_loss:.4f} on {run.corpus}"] if run else ["no evaluation yet", ""]
            lines.append([*state, f"{run.evaluations[-1][1]:.0f} s" if run else "", differing])
        except (UserError, OSError) as error:
            lines.append(["unreadable", "", "", explain(error)])
        lines[-1].insert(0, str(folder.path.relative_to(root)))
    return in_columns(lines)


def _last_change(folder: RunFolder) -> float:
    return max(file.stat().st_mtime for file in (folder.config, folder.metrics) if file.is_file())


def _settings(folder: RunFolder) -> dict[str, str]:
    """Return a run's settings as text by section.name, without those of HIDDEN; none if its config is damaged."""
    try:
        sections = to_dict(load_run_config(folder.config))
    except UserError:
        return {}
    flat = {
        f"{section}.{name}": spoken(value) for section, values in sections.items() for name, value in values.items()
    }
    return {key: value for key, value in flat.items() if key not in HIDDEN}
