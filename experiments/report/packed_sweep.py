"""Pack the settings and results of a finished sweep into one small file, from which reports can be made."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import harmonic_mean
from typing import Any

from cli.errors import UserError, checking_values
from cli.hints import to_paste
from data.files import replace_text
from experiments.command import MARK
from experiments.sweep.plan import Plan, make_plan
from experiments.sweep.sweep_folder import read_plan
from training.config import Config
from training.config_file import build_config
from training.identity import earlier_values, identity_of
from training.runs.json_values import checked
from training.runs.metrics import check_record, read_lines, read_records
from training.runs.run_folder import RunFolder

ENDING = ".jsonl"


def pack(folder: Path, file: Path) -> None:
    """Write a sweep's plan and, for each run, its evaluations, mean speed and end, one run per line.

    Raises UserError if the folder is not that of a sweep or a run is not finished.
    """
    plan = read_plan(folder)
    if plan is None:
        raise UserError(f"{folder}: is not the folder of a sweep; only sweeps can be packed")
    lines = [plan.settings]
    for point in plan.points:
        records = read_records(RunFolder(folder / point.name).metrics)
        if not records or not records[-1].get("finished"):
            finish = to_paste("experiments.sweep", "--resume", folder)
            raise UserError(f"{folder / point.name}: is not finished; finish it with {finish}")
        trained = trained_config(records)
        if trained and identity_of(trained, {}) != identity_of(point.config, {}):
            raise UserError(f"{folder / point.name}: was trained with other settings than {folder} has; restore them")
        lines.append({"point": point.name, "records": _shortened(records), "note": MARK})
    replace_text(file, "".join(json.dumps(line) + "\n" for line in lines))


def unpack(file: Path) -> tuple[Plan, dict[str, list[dict[str, Any]]]]:
    """Return the plan of a packed sweep and the records of each run, by the name of its point.

    Raises UserError if the file is not a packed sweep.
    """
    settings, *runs = read_lines(file) or [None]
    packed: dict[str, list[dict[str, Any]]] = {}
    with checking_values(f"{file}: is not a packed sweep: "):
        for n, run in enumerate(runs, start=2):
            checked(run, kinds := {"point": str, "records": list}, kinds)
            packed[run["point"]] = [check_record(record, f"line {n}") for record in run["records"]]
        plan = make_plan(checked(settings, {}))
        if missing := [point.name for point in plan.points if point.name not in packed]:
            raise UserError(f"it lacks the run {missing[0]}")
    return plan, packed


def trained_config(records: Sequence[Mapping[str, Any]]) -> Config | None:
    """Return the settings that a run was trained with, or None if its metrics are of an earlier version."""
    recorded = [record["settings"] for record in records if "settings" in record]
    return build_config(recorded[-1]) if recorded else None


def identity_in(records: Sequence[Mapping[str, Any]], config: Config) -> dict[str, Any]:
    """Return the identity of a run with these metrics and settings; see `identity_of`.

    In metrics of earlier versions, the recorded text and the changes of settings stand for the origin.
    """
    if origins := [record["origin"] for record in records if "origin" in record]:
        return identity_of(config, origins[-1])
    texts = [record["text"][:8] for record in records if "text" in record]
    sessions = [(record["step"], build_config(record["settings"])) for record in records if "settings" in record]
    identity: dict[str, Any] = {}
    for step, settings in sessions or [(0, config)]:
        now = identity_of(settings, {}) | {"text": texts[-1] if texts else ""}
        identity = now | {"earlier": earlier_values(now, identity, step)}
    return identity


def _shortened(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the records of evaluations and of the end, preceded by one with the mean speed and the run's origin."""
    rates = [record["tokens_per_s"] for record in records if "tokens_per_s" in record]
    first: dict[str, Any] = {"step": 0} | ({"tokens_per_s": round(harmonic_mean(rates))} if rates else {})
    for record in records:
        first |= {"origin": record["origin"]} if "origin" in record else {}
    return [first, *(record for record in records if "val_loss" in record or record.get("finished"))]
