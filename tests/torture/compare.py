"""Compare two run folders that must be equal but for times."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from training.runs.checkpoint import CheckpointError, load_checkpoint
from training.runs.metrics import read_records
from training.runs.run_folder import RunFolder

MEASURED = {"elapsed_s", "tokens_per_s", "peak_memory_bytes", "log_sizes", "date", "commit"}  # these may differ


def differences(run: RunFolder, expected: RunFolder) -> list[str]:
    """Return how a run differs from the expected one, one line each: checkpoints, kept weights, metrics and samples."""
    found = []
    kept, expected_kept = run.all_kept(), expected.all_kept()
    if kept.keys() != expected_kept.keys():
        found.append(f"kept steps: {list(kept)} instead of {list(expected_kept)}")
    pairs = [(run.latest, expected.latest), (run.best, expected.best)]
    pairs += [(kept[step], expected_kept[step]) for step in kept.keys() & expected_kept.keys()]
    for ours, theirs in pairs:
        found += [f"{ours.name}: {line}" for line in checkpoint_differences(ours, theirs)]
    if any(_differences("", read_records(run.metrics), read_records(expected.metrics))):
        found.append("metrics.jsonl differs")
    if run.samples.read_bytes() != expected.samples.read_bytes():
        found.append("samples.txt differs")
    return found + [f"{path.name} is left" for path in run.path.rglob("*.part")]


def checkpoint_differences(path: Path, expected: Path) -> list[str]:
    """Return which values of two checkpoints differ, tensor by tensor; the names of the runs may."""
    try:
        ours, theirs = load_checkpoint(path), load_checkpoint(expected)
    except CheckpointError as error:
        return [str(error)]
    for checkpoint in (ours, theirs):
        checkpoint.settings["train"]["name"] = None
    return list(_differences("", vars(ours), vars(theirs)))


def _differences(name: str, a: Any, b: Any) -> Iterator[str]:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for key in sorted(a.keys() | b.keys(), key=str):
            if key not in MEASURED:
                yield from _differences(f"{name}.{key}".lstrip("."), a.get(key), b.get(key))
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for number, (ours, theirs) in enumerate(zip(a, b, strict=True)):
            yield from _differences(f"{name}[{number}]", ours, theirs)
    elif isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        if not torch.equal(a, b):
            yield f"{name} differs"
    elif a != b:
        yield f"{name} is {a!r:.60} instead of {b!r:.60}"
