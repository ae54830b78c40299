"""Runs that are killed, or whose folder goes away, at a chosen moment."""

import functools
import os
import resource
import shutil
import signal
from fnmatch import fnmatch
from pathlib import Path

import pytest
from conftest import TINY_TEXT
from helpers import resume, run_differences, start_train, train_run, wait_for

from training.runs.checkpoint import load_checkpoint
from training.runs.open_run import load_newest
from training.runs.run_folder import RunFolder

pytestmark = pytest.mark.slow

SETTINGS = ["train.eval_every_steps=10", "train.log_every_steps=5", "train.device=cpu"]
# Moments are a system call, with names or modes of files, and which of these calls.
OPEN = ("open latest.safetensors.*.part w", 4)  # in the save of step 30
FIRST_RENAME = ("os.rename latest.safetensors previous.safetensors", 3)
SECOND_RENAME = ("os.rename latest.safetensors.*.part latest.safetensors", 4)
FLUSH = ("open checkpoints None", 5)
FIRST_EVALUATION, END = ("open metrics.jsonl a", 2), ("open metrics.jsonl a", 14)


class At:
    def __init__(self, moment, act):
        (self.call, self.left), self.act = moment, act

    def __call__(self, event, arguments):
        if event in ("open", "os.rename"):
            self.left -= fnmatch(f"{event} {Path(str(arguments[0])).name} {Path(str(arguments[1])).name}", self.call)
            if self.left == 0:
                self.left = -1
                self.act()


def pause():
    """Say by a file `here` that the process waits for a file `go`."""
    Path("here").touch()
    wait_for(Path("go").exists)


def send(number):
    os.kill(os.getpid(), number)


def kill_in_the_middle_of_a_file(size):
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, size // 2))


@pytest.mark.parametrize(
    ("moment", "step"),
    [(OPEN, 20), (None, 20), (FIRST_RENAME, 20), (SECOND_RENAME, 20), (FLUSH, 30)],
    ids=["before the write", "in the middle of it", "before a rename", "between the renames", "before the flush"],
)
def test_a_run_killed_inside_a_save_keeps_a_checkpoint_and_resumes_exactly(workplace, capsys, moment, step):
    # It has all characters equally often, so the loss rises, and only the first evaluation is the best.
    (workplace / "equal.txt").write_text("".join(sorted(set(TINY_TEXT))) * 20, encoding="utf-8")
    settings = [*SETTINGS, "data.val_corpus=equal.txt"]
    whole = train_run("whole", *settings)
    assert load_checkpoint(whole.best).step == 10
    in_the_middle = functools.partial(kill_in_the_middle_of_a_file, whole.latest.stat().st_size)
    hook = At(moment, functools.partial(send, signal.SIGKILL)) if moment else At(OPEN, in_the_middle)
    process = start_train("output.txt", "--config", "tiny.yaml", *settings, hook=hook)
    process.join(180)
    assert process.exitcode == -(signal.SIGKILL if moment else signal.SIGXFSZ), Path("output.txt").read_text()
    run = RunFolder(workplace / "runs" / "tiny")
    capsys.readouterr()
    assert (load_newest(run).step, capsys.readouterr().err) == (step, "")
    resume(run)
    assert run_differences(run, whole) == []


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_a_signal_stops_saves_its_step_and_resumes_exactly(workplace, number, status):
    settings = [*SETTINGS, "optim.average_fraction=0.2", "train.grow_context_at=[0.2,0.6]"]
    whole = train_run("whole", *settings)
    hook = At(FIRST_EVALUATION, functools.partial(send, number))
    process = start_train("output.txt", "--config", "tiny.yaml", *settings, hook=hook)
    process.join(180)
    output = Path("output.txt").read_text()
    assert process.exitcode == status, output
    assert "\nStopping after this step and saving; press Ctrl-C again to stop at once" in output
    assert "--resume runs/tiny" in output
    run = RunFolder(workplace / "runs/tiny")
    assert 0 < load_checkpoint(run.latest).step < 40
    resume(run)
    assert run_differences(run, whole) == []


@pytest.mark.parametrize("disturb", [shutil.rmtree, lambda path: Path(path).rename("runs/other")])
@pytest.mark.parametrize("moment", [FIRST_EVALUATION, FIRST_RENAME, SECOND_RENAME, END], ids=str)
def test_a_run_whose_folder_is_deleted_or_moved_ends_with_one_line_and_creates_nothing(workplace, moment, disturb):
    process = start_train("output.txt", "--config", "tiny.yaml", *SETTINGS, hook=At(moment, pause))
    wait_for(Path("here").exists)
    disturb("runs/tiny")
    Path("go").touch()
    process.join(180)
    output = Path("output.txt").read_text()
    gone = "runs/tiny: this folder or its lock was deleted or moved, so the run ends"
    assert (process.exitcode, output.count("train.py: "), output.splitlines()[-1]) == (1, 1, f"train.py: {gone}")
    assert not Path("runs/tiny").exists()
