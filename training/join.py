"""Join the parts of a run's sharded checkpoints: python -m training.join runs/NAME"""

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from model.gpt import GPT
from training.checkpoint import Checkpoint, CheckpointError, load_part, save_checkpoint
from training.command import CommandParser, run_command, tell_mistakes
from training.run_folder import RunFolder


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    options = parse(arguments)
    return tell_mistakes("training.join", lambda: join(options.run), memory="join the parts on a larger machine")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = CommandParser(
        prog="python -m training.join",
        description="Make one file of the parts that the processes of a run saved with train.sharded_checkpoints, to "
        "sample from it or to resume with another number of processes. The parts stay. If several hosts have saved "
        "them, copy all into one folder first. The memory must hold the whole checkpoint twice.",
    )
    parser.add_argument("run", type=Path, help="the run folder, such as runs/shakespeare")
    return parser.parse_args(arguments)


def join(folder: Path) -> int:
    """Write latest.pt and best.pt of the run in a folder."""
    run = RunFolder.find(folder)
    with run.lock():
        n = run.n_parts()
        if not n:
            raise CheckpointError(f"{run.path}: has no parts to join (checkpoints/latest.0-of-2.pt and so on)")
        parts = [run.part(rank, n) for rank in range(n)]
        save(newest(parts), run.latest)
        try:
            save([part.best for part in parts], run.best)
        except CheckpointError as error:  # sampling then uses the latest one
            print(f"No best.pt: {error}")
    return 0


def newest(parts: Sequence[RunFolder]) -> list[Path]:
    """Return the files of the newest checkpoint whose parts are all intact."""
    files = [part.part_files() for part in parts]
    common = set.intersection(*map(set, files))
    if not common:
        missing = next((part.latest for part, found in zip(parts, files, strict=True) if not found), parts[0].latest)
        raise CheckpointError(f"{missing}: is missing or not of the same step as the other parts; copy all parts here")
    return [found[max(common)] for found in files]


def save(files: Sequence[Path], target: Path) -> None:
    """Join the files and save the result."""
    checkpoint = joined([load_part(file) for file in files])
    save_checkpoint(checkpoint, target)
    print(f"Joined {len(files)} parts of step {checkpoint.step:,} to {target}")


def joined(parts: Sequence[Checkpoint]) -> Checkpoint:
    """Return the checkpoint of which these are the parts, in the order of the ranks.

    Raises CheckpointError if they are not parts of one checkpoint.
    """
    first = parts[0]
    for rank, part in enumerate(parts):
        if part.part != (rank, len(parts)) or part.step != first.step or part.settings != first.settings:
            raise CheckpointError(f"part {rank} of {len(parts)} is of another checkpoint (step {part.step:,})")
    whole = dataclasses.replace(
        first,
        model=_rows([part.model for part in parts]),
        trained=_rows([part.trained for part in parts if part.trained is not None]) or None,
        optimizers=[
            {number: _rows([state[number] for state in states]) for number in states[0]}
            for states in zip(*(part.optimizers for part in parts), strict=True)
        ],
        part=None,
    )
    with torch.device("meta"):
        model = GPT(whole.config().model, len(whole.characters))
    if wrong := [name for name, x in model.state_dict().items() if whole.model[name].shape != x.shape]:
        raise CheckpointError(f"the joined weights do not fit the checkpoint's settings ({wrong[0]})")
    return whole


def _rows(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return values with the rows of all parts. A number, such as a count of steps, is the same in all of them."""
    if not parts:
        return {}
    return {
        name: torch.cat([part[name] for part in parts]) if isinstance(x, torch.Tensor) and x.ndim else x
        for name, x in parts[0].items()
    }


if __name__ == "__main__":
    run_command(main)
