"""Checkpoints of which each process saves its part."""

import dataclasses
import os
import shutil
import signal
from pathlib import Path

import pytest
import torch
from conftest import ROOT, run_script
from helpers import assert_same_but_for_the_name, assert_same_state
from torchrun import finish, lines_of_train, torchrun, train, wait_for_step, workers

import train as command
from training import join
from training.checkpoint import load_checkpoint, save_checkpoint
from training.run_folder import RunFolder

SETTINGS = ["train.parallel=fsdp", "train.sharded_checkpoints=true", "optim.average_fraction=0.1"]
SETTINGS += ["train.checkpoint_every_steps=10", "train.max_steps=60"]


def part_of(checkpoint, rank, size):
    """Return the rows of a checkpoint's tensors that a process holds."""

    def rows(values):
        chunks = {name: x.chunk(size) if torch.is_tensor(x) and x.ndim else x for name, x in values.items()}
        empty = {name: x[0][:0] for name, x in chunks.items() if isinstance(x, tuple)}
        return {
            name: (x[rank].clone() if rank < len(x) else empty[name]) if isinstance(x, tuple) else x
            for name, x in chunks.items()
        }

    return dataclasses.replace(
        checkpoint,
        model=rows(checkpoint.model),
        trained=checkpoint.trained and rows(checkpoint.trained),
        optimizers=[{n: rows(state) for n, state in states.items()} for states in checkpoint.optimizers],
        part=(rank, size),
    )


@pytest.fixture
def divided(workplace):
    """Return a run of 20 steps whose checkpoints of steps 10 and 20 are in three parts, and its whole checkpoint."""
    settings = ["train.max_steps=20", "train.checkpoint_every_steps=10", "optim.average_fraction=0.1"]
    assert command.main(["--config", "tiny.yaml", *settings]) == 0
    run = RunFolder(workplace / "runs/tiny")
    for path in (run.previous, run.latest):
        for rank in range(3):
            whole = load_checkpoint(path)
            run.part(rank, 3).save(part_of(whole, rank, 3), is_best=whole.step == 20)
    whole = run.latest.rename(workplace / "whole.pt")
    run.previous.rename(workplace / "previous.pt")
    run.best.unlink()
    return run, whole


@pytest.mark.parametrize("average", [0, 0.1])
def test_the_joined_parts_are_the_whole_checkpoint(divided, average):
    run, whole = divided
    if not average:
        checkpoint = dataclasses.replace(load_checkpoint(whole), trained=None)
        save_checkpoint(checkpoint, whole)
        for rank in range(3):
            run.part(rank, 3).save(part_of(checkpoint, rank, 3))
    assert join.main([str(run.path)]) == 0
    assert_same_state(run.latest, whole)
    assert load_checkpoint(run.latest).trained is None or average
    assert command.main(["--resume", str(run.path), "train.max_steps=25"]) == 0


def test_if_one_part_is_damaged_or_older_the_checkpoint_before_is_joined(divided, capsys):
    run, _ = divided
    damaged = run.part(1, 3).latest
    damaged.write_bytes(damaged.read_bytes()[:-1])
    run.part(2, 3).previous.replace(run.part(2, 3).latest)  # this process was killed before its second save
    run.part(0, 3).best.unlink()
    assert join.main([str(run.path)]) == 0
    assert_same_state(run.latest, run.path.parent.parent / "previous.pt")
    output, errors = capsys.readouterr()
    assert "Joined 3 parts of step 10" in output
    assert "No best.pt" in output
    assert f"{damaged}: is damaged" in errors


def test_parts_that_do_not_belong_together_are_not_joined(divided, capsys):
    run, _ = divided
    shutil.copy(run.part(1, 3).latest, run.part(2, 3).latest)
    assert join.main([str(run.path)]) == 2
    assert "part 2 of 3 is of another checkpoint" in capsys.readouterr().err
    run.part(2, 3).latest.unlink()
    run.part(2, 3).previous.unlink()
    assert join.main([str(run.path)]) == 2
    assert f"{run.part(2, 3).latest}: is missing" in capsys.readouterr().err
    assert not run.latest.exists()


def test_one_process_says_how_to_use_a_run_in_parts(divided, capsys):
    run, _ = divided
    advice = f"python -m training.join {run.path}"
    assert command.main(["--resume", str(run.path)]) == 2
    error = capsys.readouterr().err
    assert "step 20 is in 3 parts" in error
    assert advice in error
    for checkpoint in (run.path, run.part(0, 3).latest):
        assert advice in run_script("sample.py", "--checkpoint", checkpoint).stderr
    shutil.copy(run.path.parent.parent / "previous.pt", run.latest)  # an older checkpoint does not hide the newer parts
    assert command.main(["--resume", str(run.path)]) == 2
    assert "step 20 is in 3 parts" in capsys.readouterr().err


def test_a_run_without_parts_has_nothing_to_join(workplace, capsys):
    assert command.main(["--config", "tiny.yaml", "train.max_steps=2"]) == 0
    assert join.main(["runs/tiny"]) == 2
    assert "has no parts to join" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_in_parts_survives_a_killed_process_and_ends_like_a_run_with_whole_checkpoints(workplace):
    finish(train(2, *SETTINGS, "train.sharded_checkpoints=false", name="whole"))
    process = train(2, *SETTINGS, name="parts", options=["--max-restarts=1"])
    wait_for_step("parts", 30)
    os.kill(workers(process)[1], signal.SIGKILL)
    finish(process)
    run = RunFolder(Path("runs/parts"))
    assert not run.latest.exists()
    # As if process 1 had been killed between its last two saves.
    run.part(1, 2).previous.replace(run.part(1, 2).latest)
    finish(torchrun(2, str(ROOT / "train.py"), "--resume", "runs/parts"))
    assert join.main(["runs/parts"]) == 0
    for file in ("latest.pt", "best.pt"):
        whole, joined = Path("runs/whole/checkpoints") / file, Path("runs/parts/checkpoints") / file
        checkpoint = load_checkpoint(joined)
        checkpoint.settings["train"]["sharded_checkpoints"] = False
        save_checkpoint(checkpoint, joined)
        assert_same_but_for_the_name(joined, whole)


@pytest.mark.slow
def test_parts_are_resumed_only_by_as_many_processes(workplace):
    finish(train(2, *SETTINGS, name="parts"))
    longer = ["--resume", "runs/parts", "train.max_steps=70"]
    for n, settings in ((3, []), (2, ["train.parallel=ddp", "train.sharded_checkpoints=false"])):
        _, errors = finish(torchrun(n, str(ROOT / "train.py"), *longer, *settings), expected=1)
        (line,) = lines_of_train(errors)
        assert "step 60 is in 2 parts; resume with 2 processes and train.parallel=fsdp" in line
    assert join.main(["runs/parts"]) == 0
    finish(torchrun(4, str(ROOT / "train.py"), *longer))
