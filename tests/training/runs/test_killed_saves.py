import signal
import sys

import pytest
from conftest import ROOT, TINY_TEXT, run_command
from helpers import resume, run_differences, train_run

from training.runs.checkpoint import load_checkpoint
from training.runs.open_run import load_newest
from training.runs.run_folder import RunFolder

# Runs a command and kills its process at a point of the n-th save. A limit on the size of files ends the process in the
# middle of a write, because the default action of its signal is to kill.
KILLED_AT = """
import os, resource, signal, sys
sys.path.insert(0, {root!r})
import train
point, number, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
counts = dict.fromkeys(["open", "sync", "rename"], 0)
points = {{
    "before the write": ("open", 1),
    "before the flush": ("sync", 1),
    "before the first rename": ("rename", 1),
    "between the renames": ("rename", 2),
    "before the folder's flush": ("sync", 2),
}}
def note(event):
    counts[event] += 1
    if points.get(point) == (event, counts[event]):
        os.kill(os.getpid(), signal.SIGKILL)
saves = 0
def hook(event, arguments):
    global saves
    if event == "open" and ".safetensors." in str(arguments[0]) and str(arguments[0]).endswith(".part"):
        saves += 1
        if saves == number:
            if point == "in the middle of the write":
                signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
                resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, size // 2))
            note("open")
    if event == "os.rename" and saves == number and str(arguments[0]).endswith((".safetensors", ".part")):
        note("rename")
sys.addaudithook(hook)
sync = os.fsync
def counting_sync(descriptor):
    if saves == number:
        note("sync")
    sync(descriptor)
os.fsync = counting_sync
sys.exit(train.main(sys.argv[4:]))
"""
POINTS = ["before the write", "in the middle of the write", "before the flush", "before the first rename"]
POINTS += ["between the renames", "before the folder's flush"]
# The validation text has all characters equally often, so the loss rises, and only the first evaluation is the best.
SETTINGS = ["train.eval_every_steps=10", "data.val_corpus=equal.txt", "train.device=cpu"]


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_a_run_killed_inside_a_save_keeps_a_checkpoint_and_resumes_exactly(workplace, point):
    (workplace / "equal.txt").write_text("".join(sorted(set(TINY_TEXT))) * 20, encoding="utf-8")
    whole = train_run("whole", *SETTINGS)
    assert load_checkpoint(whole.best).step == 10
    of_step_30 = 5  # after those of step 0, step 10, which saves the best, too, and step 20
    where = [point, str(of_step_30), str(whole.latest.stat().st_size)]
    command = [sys.executable, "-c", KILLED_AT.format(root=str(ROOT)), *where, "--config", "tiny.yaml", *SETTINGS]
    killed = run_command(command)
    assert killed.returncode in (-signal.SIGKILL, -signal.SIGXFSZ), killed.stderr
    run = RunFolder(workplace / "runs" / "tiny")
    checkpoint, warnings = load_newest(run)
    assert (checkpoint.step, warnings) == (30 if point == "before the folder's flush" else 20, [])
    resume(run)
    assert run_differences(run, whole) == []
