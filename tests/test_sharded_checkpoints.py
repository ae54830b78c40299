"""Checkpoints that are divided: each process saves the part of the state that it holds."""

import dataclasses
import os
import re
import shutil
import signal
from pathlib import Path

import pytest
import torch
from conftest import ROOT, TINY_CONFIG, TINY_TEXT, run_script
from helpers import assert_same_but_for_the_name, assert_same_state
from torchrun import finish, lines_of_train, torchrun, train, wait_for_step, workers

import sample
import train as command
from training.runs import join
from training.runs.checkpoint import CheckpointError, Part, load_checkpoint, load_file, save_checkpoint
from training.runs.run_folder import RunFolder

SETTINGS = ["train.parallel=fsdp", "train.sharded_checkpoints=true", "optim.average_fraction=0.1"]
SETTINGS += ["train.checkpoint_every_steps=10", "train.eval_every_steps=30", "train.max_steps=60"]


def rows_of(checkpoint, rank, size):
    """Return a checkpoint with the rows that a process holds."""

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
    )


def divide(run, path, save, size):
    """Replace a checkpoint's file by parts."""
    whole = load_checkpoint(path)
    for rank in range(size):
        part = Part(save, rank, size)
        save_checkpoint(dataclasses.replace(rows_of(whole, rank, size), part=part), run.part(part))
    empty = dataclasses.replace(whole, model={}, trained=None, optimizers=[], part=Part(save, None, size))
    save_checkpoint(empty, path)


@pytest.fixture(params=[0, 0.1])
def divided(request, workplace):
    """Return a run with averaged weights or without, whose checkpoints are in three parts, and a copy with whole ones.

    Its latest and best checkpoint is of step 20, the previous one of step 10.
    """
    settings = ["train.max_steps=20", "train.checkpoint_every_steps=10", f"optim.average_fraction={request.param}"]
    assert command.main(["--config", "tiny.yaml", *settings]) == 0
    run, whole = RunFolder(workplace / "runs/tiny"), RunFolder(workplace / "whole")
    shutil.copytree(run.path, whole.path)
    for path, save in ((run.previous, "step-10-a"), (run.latest, "step-20-b"), (run.best, "step-20-b")):
        divide(run, path, save, 3)
    return run, whole


def test_joined_checkpoints_are_the_whole_ones_and_their_parts_are_removed(divided, capsys):
    run, whole = divided
    assert join.main([str(run.path)]) == 0
    assert "joined 3 parts of step 20" in capsys.readouterr().out
    for file in ("latest", "previous", "best"):
        assert_same_state(getattr(run, file), getattr(whole, file))
    assert not list(run.parts.iterdir())
    assert command.main(["--resume", str(run.path), "train.max_steps=25"]) == 0
    assert join.main([str(run.path)]) == 2
    assert "has no checkpoint in parts" in capsys.readouterr().err
    assert load_checkpoint(run.latest).step == 25


def test_a_save_of_which_a_part_is_missing_damaged_or_another_one_is_not_joined_but_the_others_are(divided, capsys):
    run, whole = divided
    previous, latest = run.part(Part("step-10-a", 1, 3)), run.part(Part("step-20-b", 1, 3))
    latest.unlink()
    assert join.main([str(run.path)]) == 2
    error = capsys.readouterr().err
    assert f"latest.pt and best.pt cannot be joined: {latest}: is missing; start each process on the host" in error
    assert_same_state(run.previous, whole.previous)
    assert {path.name.partition(".")[0] for path in run.parts.iterdir()} == {"step-20-b"}

    divide(run, run.previous, "step-10-a", 3)
    previous.write_bytes(previous.read_bytes()[:-1])
    shutil.copy(run.part(Part("step-20-b", 2, 3)), latest)
    assert join.main([str(run.path)]) == 2
    error = capsys.readouterr().err
    assert f"{previous}: is damaged" in error
    assert f"{latest}: is another part than its name says" in error
    assert all(load_file(path).part for path in (run.latest, run.previous, run.best))


def test_one_process_says_how_to_use_a_run_in_parts(divided, capsys):
    run, _ = divided
    assert command.main(["--resume", str(run.path)]) == 2
    error = capsys.readouterr().err
    assert "divided among 3 processes; resume it with 3 processes and train.parallel=fsdp" in error
    assert f"python -m training.runs.join {run.path}" in error
    for file in (run.best, run.part(Part("step-20-b", 0, 3))):
        message = f"is divided into 3 parts; join them first: python -m training.runs.join {run.path}"
        with pytest.raises(CheckpointError, match=f"{re.escape(message)}$"):
            load_checkpoint(file)
    assert sample.main(["--checkpoint", str(run.path)]) == 2
    assert "is divided into 3 parts" in capsys.readouterr().err


def test_if_the_files_that_refer_to_a_save_are_set_aside_the_save_before_is_the_newest(divided):
    run, _ = divided
    run.set_aside("step-20-b")
    newest, warnings = run.load_newest()
    assert (newest.part.save, newest.step, warnings) == ("step-10-a", 10, [])
    assert sorted(path.name for path in run.latest.parent.glob("*.damaged")) == ["best.damaged", "latest.damaged"]


def steps_resumed_from(output):
    return [int(step.replace(",", "")) for step in re.findall(r"resuming from step ([\d,]+)", output)]


@pytest.fixture(scope="session")
def whole_run(tmp_path_factory):
    """Return the folder of a sharded run that saves whole checkpoints."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "tiny.yaml").write_text(TINY_CONFIG, encoding="utf-8")
    (folder / "text.txt").write_text(TINY_TEXT, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        finish(train(2, *SETTINGS, "train.sharded_checkpoints=false", name="whole"))
    return folder / "runs/whole"


@pytest.mark.slow
def test_a_run_in_parts_survives_kills_and_damage_and_ends_like_a_run_with_whole_checkpoints(workplace, whole_run):
    shutil.copytree(whole_run, "runs/whole")
    process = train(2, *SETTINGS, name="parts", options=["--max-restarts=1"])
    wait_for_step("parts", 30)
    os.kill(workers(process)[1], signal.SIGKILL)
    output, _ = finish(process)
    assert steps_resumed_from(output)[-1] in (20, 30, 40, 50)
    run = RunFolder(Path("runs/parts"))
    assert {load_file(path).part.size for path in (run.latest, run.previous, run.best)} == {2}
    assert {path.name.partition(".")[0] for path in run.parts.iterdir()} == set(run.saves().values())

    # A kill before the save was complete, and a damaged part: the run resumes from the save before.
    unfinished = run.part(Part("step-70-x", 0, 2))
    shutil.copy(run.part(load_file(run.latest).part._replace(rank=0)), unfinished)
    damaged = run.part(load_file(run.latest).part._replace(rank=1))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    output, errors = finish(torchrun(2, str(ROOT / "train.py"), "--resume", "runs/parts"))
    assert f"{damaged}: is damaged" in errors
    assert steps_resumed_from(output) == [50]
    assert not unfinished.exists()

    assert_same_as_whole("parts")


def assert_same_as_whole(name):
    assert join.main([f"runs/{name}"]) == 0
    for file in ("latest.pt", "previous.pt", "best.pt"):
        whole, joined = Path("runs/whole/checkpoints") / file, Path("runs", name, "checkpoints") / file
        checkpoint = load_checkpoint(joined)
        checkpoint.settings["train"]["sharded_checkpoints"] = False
        save_checkpoint(checkpoint, joined)
        assert_same_but_for_the_name(joined, whole)


# Kills a process of the first attempt when it opens, renames or removes such a file for the n-th time.
KILLED = """
import os, signal, sys
sys.path.insert(0, {root!r})
import train
from cli.command import run_command
rank, event, name, number = {rank}, {event!r}, {name!r}, {number}
count = 0
def hook(happened, arguments):
    global count
    if happened == event and name in str(arguments[0]):
        count += 1
        if count == number:
            open("killed.txt", "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
if os.environ["RANK"] == str(rank) and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    sys.addaudithook(hook)
run_command(train.main)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rank", "event", "name", "number"),
    [
        (1, "open", "1-of-2.pt", 1),  # its first part: there is no checkpoint yet
        (1, "open", "1-of-2.pt", 3),
        (0, "os.rename", "0-of-2.pt", 3),  # its part is on disk
        (0, "os.rename", "latest.pt", 4),  # all parts are on disk; latest.pt has become previous.pt
        (0, "os.remove", "0-of-2.pt", 1),  # the checkpoint is complete; old parts are being removed
    ],
)
def test_a_run_whose_process_is_killed_inside_a_save_in_parts_resumes_exactly(
    workplace, rank, event, name, number, whole_run
):
    (workplace / "killed.py").write_text(
        KILLED.format(root=str(ROOT), rank=rank, event=event, name=name, number=number), encoding="utf-8"
    )
    shutil.copytree(whole_run, "runs/whole")
    arguments = ["--config", "tiny.yaml", "train.batch_size=8", *SETTINGS, "train.name=killed"]
    finish(torchrun(2, "killed.py", *arguments, options=["--max-restarts=1"]))
    assert Path("killed.txt").exists()
    run = RunFolder(Path("runs/killed"))
    assert {path.name.partition(".")[0] for path in run.parts.iterdir()} == set(run.saves().values())
    assert_same_as_whole("killed")


@pytest.mark.slow
def test_a_missing_part_is_an_error_and_nothing_is_renamed(workplace):
    finish(train(2, *SETTINGS, name="parts"))
    run = RunFolder(Path("runs/parts"))
    part = run.part(load_file(run.latest).part._replace(rank=1))
    part.rename("elsewhere")
    _, errors = finish(torchrun(2, str(ROOT / "train.py"), "--resume", "runs/parts", "train.max_steps=70"), expected=1)
    assert lines_of_train(errors) == [
        f"train.py: {part}: is missing; start each process on the host that has its part, or copy the part here"
    ]
    assert run.latest.exists()
    Path("elsewhere").rename(part)
    resumed = run_script("train.py", "--resume", "runs/parts", "train.max_steps=70", "train.processes=2")
    assert steps_resumed_from(resumed.stdout) == [60]
    assert resumed.returncode == 0, resumed.stderr


@pytest.mark.slow
def test_parts_are_resumed_only_by_as_many_processes_and_a_run_can_change_to_parts_and_back(workplace):
    finish(train(2, *SETTINGS, "train.sharded_checkpoints=false", name="parts"))
    resume = [str(ROOT / "train.py"), "--resume", "runs/parts"]
    output, _ = finish(
        torchrun(3, *resume, "train.batch_size=6", "train.max_steps=70", "train.sharded_checkpoints=true")
    )
    assert steps_resumed_from(output) == [60]
    for n, settings in ((2, []), (3, ["train.parallel=ddp", "train.sharded_checkpoints=false"])):
        _, errors = finish(torchrun(n, *resume, "train.max_steps=80", *settings), expected=1)
        (line,) = lines_of_train(errors)
        assert "divided among 3 processes; resume it with 3 processes and train.parallel=fsdp" in line
    output, _ = finish(torchrun(3, *resume, "train.max_steps=80", "train.sharded_checkpoints=false"))
    assert steps_resumed_from(output) == [70]
    run = RunFolder(Path("runs/parts"))
    assert load_checkpoint(run.latest).step == 80
    assert load_file(run.previous).part.size == 3
    assert join.main(["runs/parts"]) == 0
    output, _ = finish(torchrun(1, *resume, "train.max_steps=90"))
    assert steps_resumed_from(output) == [80]
