"""SIGKILL at every point of a save, and at 50 seeded moments of a run."""

import random
import signal
import subprocess
import sys
import time

import pytest
from conftest import ROOT, run_script
from helpers import run_differences, start_train, wait_for

import train
from training.runs.checkpoint import load_checkpoint
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
SETTINGS = ["train.checkpoint_every_steps=10", "train.eval_every_steps=100", "train.device=cpu"]


@pytest.fixture
def whole(workplace):
    assert train.main(["--config", "tiny.yaml", *SETTINGS, "train.name=whole"]) == 0
    return RunFolder(workplace / "runs" / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_a_run_killed_inside_a_save_keeps_a_checkpoint_and_resumes_exactly(workplace, whole, point):
    size, fourth_save = whole.latest.stat().st_size, 4  # the first is that of step 0
    command = [sys.executable, "-c", KILLED_AT.format(root=str(ROOT)), point, str(fourth_save), str(size)]
    killed = subprocess.run([*command, "--config", "tiny.yaml", *SETTINGS], capture_output=True, text=True)
    assert killed.returncode in (-signal.SIGKILL, -signal.SIGXFSZ), killed.stderr
    run = RunFolder(workplace / "runs" / "tiny")
    checkpoint, warnings = run.load_newest()
    assert (checkpoint.step, warnings) == (30 if point == "before the folder's flush" else 20, [])
    assert train.main(["--resume", str(run.path)]) == 0
    assert run_differences(run, whole) == []


@pytest.mark.nightly
def test_a_run_killed_at_50_seeded_moments_ends_exactly_like_an_undisturbed_one(workplace):
    settings = ["train.max_steps=1000", "train.checkpoint_every_steps=2", "train.eval_every_steps=500"]
    begin = time.perf_counter()
    assert train.main(["--config", "tiny.yaml", *settings, "train.name=whole"]) == 0
    share = (time.perf_counter() - begin) / 50  # of each killed attempt, so that they end before the run does
    run, rng, steps, n_killed = RunFolder(workplace / "runs" / "tiny"), random.Random(50), [], 0
    for number in range(50):
        source = ["--resume", run.path] if run.config.is_file() else ["--config", "tiny.yaml", *settings]
        output = workplace / f"output-{number}.txt"
        process = start_train(output, *source)
        wait_for(lambda output=output: output.exists() and "Running on" in output.read_text())  # training begins
        time.sleep(rng.uniform(0, share))
        process.kill()
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL), output.read_text()
        n_killed += process.exitcode != 0
        saved = [load_checkpoint(path).step for path in (run.latest, run.previous) if path.exists()]
        steps.append(max(saved))  # killed between two renames, a run has only the previous one
    assert steps == sorted(steps)
    assert n_killed > 40
    assert len(set(steps)) > 10, "most kills must hit a run that has saved something new"
    assert run_script("train.py", "--resume", run.path).returncode == 0
    assert run_differences(run, RunFolder(workplace / "runs" / "whole")) == []
