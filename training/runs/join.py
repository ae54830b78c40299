"""Join the parts of a run's divided checkpoints: python -m training.runs.join runs/NAME"""

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from cli.command import CommandParser, report_errors, run_command
from model.gpt import GPT
from training.runs.checkpoint import Checkpoint, CheckpointError, Part, load_file, save_checkpoint
from training.runs.run_folder import RunFolder


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    options = parse(arguments)
    return report_errors("training.runs.join", lambda: join(options.run), memory="join the parts on a larger machine")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = CommandParser(
        prog="python -m training.runs.join",
        description="Make one file of each checkpoint that the processes of a run saved in parts "
        "(train.sharded_checkpoints=true), to sample from it or to resume with another number of processes. If several "
        "hosts have parts, first copy all into checkpoints/parts of the run folder of process 0. This needs a little "
        "more than twice the memory of the checkpoint.",
    )
    parser.add_argument("run", type=Path, help="the run folder, such as runs/shakespeare")
    return parser.parse_args(arguments)


def join(folder: Path) -> int:
    """Replace the divided checkpoints of the run in a folder, and remove their parts."""
    run = RunFolder.find(folder)
    with run.lock():
        saves = run.saves()
        problems = []
        for save in dict.fromkeys(saves.values()):
            paths = [path for path in saves if saves[path] == save]
            try:
                replace_by_whole(run, paths)
            except (CheckpointError, FileNotFoundError) as error:
                problems.append(f"{' and '.join(path.name for path in paths)} cannot be joined: {error}")
        run.remove_parts(but_of=run.saves().values())
        if problems:
            raise CheckpointError("; ".join(problems))
        if not saves:
            raise CheckpointError(f"{run.path}: has no checkpoint in parts")
    return 0


def replace_by_whole(run: RunFolder, paths: Sequence[Path]) -> None:
    """Replace the files, which refer to the same save, by whole ones."""
    part = load_file(paths[0]).part
    assert part
    checkpoint = joined(run, part)
    save_checkpoint(checkpoint, *paths)
    print(f"{' and '.join(map(str, paths))}: joined {part.size} parts of step {checkpoint.step:,}")


def joined(run: RunFolder, part: Part) -> Checkpoint:
    """Return the whole checkpoint of a save. Raises errors as `RunFolder.load_part` does."""
    parts = [run.load_part(part._replace(rank=rank)) for rank in range(part.size)]
    whole = dataclasses.replace(
        parts[0],
        model=_rows([each.model for each in parts]),
        trained=_rows([each.trained for each in parts if each.trained is not None]) or None,
        optimizers=[
            {number: _rows([state[number] for state in states]) for number in states[0]}
            for states in zip(*(each.optimizers for each in parts), strict=True)
        ],
        part=None,
    )
    with torch.device("meta"):
        model = GPT(whole.config().model, len(whole.characters))
    if wrong := [name for name, x in model.state_dict().items() if whole.model[name].shape != x.shape]:
        raise CheckpointError(f"{run.path}: the joined weights of {part.save} do not fit the settings ({wrong[0]})")
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
