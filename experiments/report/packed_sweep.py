"""Pack the settings and results of a finished sweep into one small file, from which reports can be made."""

import json
from pathlib import Path
from statistics import harmonic_mean
from typing import Any

from cli.errors import UserError
from data.files import replace_text
from training.runs.metrics import append_record, read_records
from training.runs.run_folder import RunFolder
from training.settings.config_file import dump_yaml, to_yaml
from training.sweep.sweep_folder import PLAN_FILE, describe, read_plan

ENDING = ".jsonl"


def pack(folder: Path, file: Path) -> None:
    """Write a sweep's plan and, for each run, its evaluations, mean speed and end, one run per line.

    Raises UserError if the folder is not that of a sweep or a run is not finished.
    """
    plan = read_plan(folder)
    if plan is None:
        raise UserError(f"{folder}: is not the folder of a sweep; only sweeps can be packed")
    lines = [describe(plan)]
    for point in plan.points:
        records = read_records(RunFolder(folder / point.name).metrics)
        if not records or not records[-1].get("finished"):
            raise UserError(f"{folder / point.name}: is not finished; finish the sweep with train.py --resume {folder}")
        lines.append({"point": point.name, "records": _shortened(records)})
    replace_text(file, "".join(json.dumps(line) + "\n" for line in lines))


def unpack(file: Path, folder: Path) -> Path:
    """Write a packed sweep as a sweep folder, without checkpoints, into a folder, and return its path.

    Raises UserError if the file is not a packed sweep.
    """
    path = folder / file.stem
    settings, *runs = read_records(file) or [{}]
    records = {run.get("point"): run.get("records") for run in runs}
    if "sweep" not in settings:
        raise UserError(f"{file}: is not a packed sweep: its first line has no sweep")
    replace_text(path / PLAN_FILE, dump_yaml(settings))
    try:
        plan = read_plan(path)
    except UserError as error:
        raise UserError(f"{file}: is not a packed sweep: {error}") from None
    for point in plan.points if plan else ():
        if not isinstance(lines := records.get(point.name), list):
            raise UserError(f"{file}: is not a packed sweep: it lacks the run {point.name}")
        run = RunFolder(path / point.name)
        run.lay_out(to_yaml(point.config))
        for record in lines:
            append_record(run.metrics, record)
    return path


def _shortened(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the records of evaluations and of the end, preceded by one with the mean speed of training."""
    rates = [record["tokens_per_s"] for record in records if "tokens_per_s" in record]
    speed = [{"step": 0, "tokens_per_s": round(harmonic_mean(rates))}] if rates else []
    return speed + [record for record in records if "val_loss" in record or record.get("finished")]
