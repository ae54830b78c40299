import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from conftest import ROOT, write_tiny
from helpers import losses, make_state, run_differences, start_fork, train_run, wait_for, workers

from training.processes import SharedStep
from training.runs.run_folder import RunFolder
from training.step import TrainingStep

LONG = ["train.max_steps=150", "train.eval_every_steps=10"]


def torchrun(n, *command):
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={n}", *command]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def train(n, *arguments, name):
    command = [str(ROOT / "train.py"), "--config", "tiny.yaml", f"train.name={name}", "train.batch_size=8", *arguments]
    return torchrun(n, *command)


def finish(process, expected=0):
    output, errors = process.communicate(timeout=240)
    assert process.returncode == expected, errors
    return output, errors


def wait_for_step(name, step):
    file = Path("runs") / name / "metrics.jsonl"
    wait_for(lambda: file.exists() and f'"step": {step}' in file.read_text())


@pytest.fixture(scope="session")
def calm(tmp_path_factory):
    """Return a run of two processes that nothing disturbed."""
    folder = tmp_path_factory.mktemp("calm")
    write_tiny(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        finish(train(2, *LONG, name="calm"))
    return RunFolder(folder / "runs/calm")


STEPS = ["train.batch_size=6", "train.dtype=float32"]


def take_two_steps(rank, dropout):
    """Take two steps as one of two processes; save their mean loss, and what dropout zeroed in the first."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{Path('group').resolve()}", rank=rank, world_size=2)
    state, dropped = make_state(*STEPS, f"model.dropout={dropout}"), []
    state.model.blocks[0].register_forward_pre_hook(lambda _, inputs: dropped.append(inputs[0] == 0))
    step = SharedStep(state)
    for _ in range(2):
        if rank:
            dist.broadcast_object_list([None])  # waits for process 0
        step.run()
    torch.save((state.take_mean_loss(), dropped[0]), f"{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.parametrize("dropout", [0, 0.5])
def test_two_processes_report_their_mean_loss_and_draw_different_dropout(workplace, dropout):
    processes = [start_fork(take_two_steps, rank, dropout) for rank in range(2)]
    for process in processes:
        process.join(240)
        assert process.exitcode == 0
    (loss, dropped), (other_loss, other_dropped) = (torch.load(f"{rank}.pt") for rank in range(2))
    assert loss == other_loss
    if dropout:  # independent masks agree on half of their 1,152 elements, with a standard deviation of 0.015
        assert (dropped == other_dropped).float().mean() == pytest.approx(0.5, abs=0.08)
    else:
        alone = make_state(*STEPS, "model.dropout=0")
        step = TrainingStep(alone)
        step.run()
        step.run()
        assert loss == pytest.approx(alone.take_mean_loss(), rel=1e-5)


@pytest.mark.slow
def test_two_processes_train_like_one(workplace):
    settings = ["model.dropout=0", "train.dtype=float32", "train.accumulate=2", "train.grow_context_at=[0.5]"]
    settings += ["train.log_every_steps=1", "model.ngrams=[2,3]", "model.ngram_dropout=0"]
    finish(train(2, *settings, name="two"))
    one, two = train_run("one", "train.batch_size=8", *settings).path, Path("runs/two")
    for name in ("train_loss", "val_loss", "val_characters"):
        assert losses(two, name) == pytest.approx(losses(one, name), abs=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train.batch_size=9"], "train.batch_size=9 cannot be divided among 2 processes; use 8"),
        (["data.corpus=missing.txt"], "no such file"),
        (["train.device=cuda:0"], "no device 'cuda:0'"),
    ],
)
def test_a_mistake_is_reported_in_one_line_by_one_process(workplace, arguments, message):
    _, errors = finish(train(2, *arguments, name="x"), expected=1)  # the status of torchrun itself
    (line,) = [line for line in errors.splitlines() if line.startswith("train.py: ")]
    assert message in line
    assert not Path("runs").exists()


@pytest.mark.slow
@pytest.mark.parametrize("victim", [pytest.param(0, marks=pytest.mark.nightly), 1])
def test_if_a_process_is_killed_all_end_and_the_run_can_be_resumed_exactly(workplace, calm, victim):
    process = train(2, *LONG, name="killed")
    wait_for_step("killed", 30)
    os.kill(workers(process)[victim], signal.SIGKILL)
    _, errors = finish(process, expected=1)
    assert "exitcode  : -9" in errors  # torchrun's summary names the cause
    finish(torchrun(2, str(ROOT / "train.py"), "--resume", "runs/killed"))
    assert run_differences(RunFolder(Path("runs/killed")), calm) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.nightly)])
def test_a_signal_stops_all_processes_at_the_same_step_and_the_run_resumes_exactly(workplace, calm, number):
    process = train(2, *LONG, name="stopped")
    wait_for_step("stopped", 30)
    os.kill(process.pid, number)
    output, _ = finish(process, expected=1)
    assert f"Stopped by {number.name} after step" in output
    finish(torchrun(2, str(ROOT / "train.py"), "--resume", "runs/stopped"))
    assert run_differences(RunFolder(Path("runs/stopped")), calm) == []


@pytest.mark.nightly
def test_a_run_saved_by_2_processes_resumes_on_1_and_on_4(workplace):
    half = ["data.corpus=selmere", "model.dropout=0", "train.max_steps=40", "train.dtype=float32"]
    half += ["optim.decay_fraction=0"]
    for n in (1, 4):
        finish(train(2, *half, name=f"on-{n}"))
    finish(train(1, *half, "train.max_steps=80", name="whole"))
    for n in (1, 4):
        finish(torchrun(n, str(ROOT / "train.py"), "--resume", f"runs/on-{n}", "train.max_steps=80"))
        end = losses(Path("runs/whole"), "train_loss")[-1]
        assert losses(Path(f"runs/on-{n}"), "train_loss")[-1] == pytest.approx(end, abs=2e-3)
