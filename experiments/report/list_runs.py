"""List all runs of a folder: state, loss, time, and the settings in which they differ."""

from collections import Counter
from pathlib import Path

from cli.errors import UserError, explain
from experiments.formatting import in_columns
from experiments.report.runs import flat, read_run
from training.runs.run_folder import RUNS, RunFolder
from training.settings.config_file import load_run_config
from training.sweep.plan import SEED
from training.sweep.values import spoken


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
    """Return a run's seed and the settings of a variant, as text by section.name; none if its config is damaged."""
    try:
        config = load_run_config(folder.config)
    except UserError:
        return {}
    return {key: spoken(value) for key, value in flat(config).items()} | {SEED: str(config.train.seed)}
