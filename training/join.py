"""Join the parts of a run's divided checkpoints: python -m training.join runs/NAME"""

import argparse
import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from model.gpt import GPT
from training.checkpoint import Checkpoint, CheckpointError, Part, load_file, save_checkpoint
from training.command import CommandParser, run_command, tell_mistakes
from training.run_folder import RunFolder


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    options = parse(arguments)
    return tell_mistakes("training.join", lambda: join(options.run), memory="join the parts on a larger machine")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = CommandParser(
        prog="python -m training.join",
        description="Make one file of each checkpoint that the processes of a run saved in parts "
        "(train.sharded_checkpoints=true), to sample from it or to resume with another number of processes. If several "
        "hosts have parts, copy all into checkpoints/parts of the main process's run folder first. This needs memory "
        "for twice the size of the checkpoint.",
    )
    parser.add_argument("run", type=Path, help="the run folder, such as runs/shakespeare")
    return parser.parse_args(arguments)


def join(folder: Path) -> int:
    """Replace the divided checkpoints of the run in a folder, and remove their parts."""
    run = RunFolder.find(folder)
    with run.lock():
        divided = {}
        for path in (run.latest, run.previous, run.best):
            if path.exists() and (part := load_file(path).part):
                divided[path] = part
        if not divided:
            raise CheckpointError(f"{run.path}: has no checkpoint in parts")
        for path, part in divided.items():
            try:
                checkpoint = joined(run, part)
            except CheckpointError as error:
                if path == run.latest:
                    raise
                print(f"training.join: warning: {path} stays in parts: {error}", file=sys.stderr)
                continue
            save_checkpoint(checkpoint, path)
            print(f"{path}: joined {part.size} parts of step {checkpoint.step:,}")
        run.remove_parts(but_of=run.saves())
    return 0


def joined(run: RunFolder, part: Part) -> Checkpoint:
    """Return the whole checkpoint of a save. Raises CheckpointError if a part is missing or damaged."""
    parts = [run.load_part(part._replace(rank=rank)) for rank in range(part.size)]
    whole = dataclasses.replace(
        parts[0],
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
        raise CheckpointError(f"{run.part(part)}: the joined weights do not fit the settings ({wrong[0]})")
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
