"""Pack the settings and results of a finished sweep into one small file, from which reports can be made."""

import json
import math
from pathlib import Path
from typing import Any

from cli.errors import UserError, checking_values
from cli.hints import to_paste
from cli.options import MARK
from data.files import replace_text
from experiments.report.runs import read_run
from experiments.sweep.plan import Plan, make_plan
from experiments.sweep.sweep_folder import SweepFolder, read_plan
from training.config_file import LAST_READER
from training.identity import ORIGIN
from training.runs.json_values import checked
from training.runs.metrics import check_record, read_lines, read_records
from training.runs.run_folder import RunFolder

ENDING = ".jsonl"


def pack(folder: Path, file: Path) -> None:
    """Write a sweep's plan and, for each run, its origin, mean speed, evaluations and end, one run per line.

    Raises UserError if the folder is not that of a sweep, or a run is not finished or has other settings.
    """
    plan = read_plan(folder)
    if plan is None:
        raise UserError(f"{folder}: is not the folder of a sweep; only sweeps can be packed")
    lines: list[dict[str, Any]] = [plan.settings]
    for point in plan.points:
        run = read_run(RunFolder(folder / point.name))
        if not run or not run.end:
            finish = to_paste("experiments.sweep", "--resume", folder)
            raise UserError(f"{folder / point.name}: is not finished; finish it with {finish}")
        first = {"step": 0, "origin": {key: run.identity[key] for key in ORIGIN}}
        if not math.isnan(run.tokens_per_s):
            first["tokens_per_s"] = round(run.tokens_per_s)
        records = read_records(run.folder.metrics)
        results = [record for record in records if "val_loss" in record or record.get("finished")]
        lines.append({"point": point.name, "records": [first, *results]})
    SweepFolder(folder, plan)  # refuses runs whose settings are no longer those of the plan
    lines[-1]["note"] = MARK
    replace_text(file, "".join(json.dumps(line) + "\n" for line in lines))


def name_of(path: Path) -> str:
    """Return the name of a run, a sweep or a packed sweep."""
    return path.stem if path.suffix == ENDING else path.resolve().name


def unpack(file: Path) -> tuple[Plan, dict[str, list[dict[str, Any]]]]:
    """Return the plan of a packed sweep and the records of each run, by the name of its point.

    Raises UserError if the file is not a packed sweep.
    """
    settings, *runs = read_lines(file) or [None]
    packed: dict[str, list[dict[str, Any]]] = {}
    with checking_values(f"{file}: is not a packed sweep of this version (try commit {LAST_READER}): "):
        for n, run in enumerate(runs, start=2):
            checked(run, kinds := {"point": str, "records": list}, kinds)
            packed[run["point"]] = [check_record(record, f"line {n}") for record in run["records"]]
        plan = make_plan(checked(settings, {}))
        if missing := [point.name for point in plan.points if point.name not in packed]:
            raise UserError(f"it lacks the run {missing[0]}")
    return plan, packed
