"""The folder of a sweep: claims, extensions, failures and the shares of workers."""

import json
import os
import signal
import sys

import pytest
from conftest import ROOT
from helpers import metrics, untimed

import train
from training.config import TrainConfig
from training.config_file import read_settings
from training.runs.run_folder import RunFolder
from training.sweep.plan import make_plan
from training.sweep.sweep_bar import SweepBar
from training.sweep.sweep_folder import SweepFolder
from training.sweep.workers import WorkerPool, share_of_machine


def tiny_folder(workplace):
    plan = make_plan(read_settings(workplace / "tiny.yaml"), [], ["model.n_head=1,2", "train.seed=0,1"])
    return SweepFolder.open("tiny", plan)


def run_waiting_processes(workplace, monkeypatch):
    """Let the processes of a sweep wait, so that nothing changes the folders that the pool looks at."""
    waiting = workplace / "waiting.py"
    waiting.write_text("import time; time.sleep(100)")
    monkeypatch.setattr("training.sweep.workers.TRAIN", waiting)


def test_only_one_process_at_a_time_can_claim_a_point(workplace):
    folder = tiny_folder(workplace)
    other = SweepFolder(folder.path, folder.plan)
    one, two, *_ = folder.plan.points
    with folder.claim(one) as first:
        assert first
        with other.claim(one) as second, other.claim(two) as elsewhere:
            assert not second
            assert elsewhere
    with other.claim(one) as free_again:
        assert free_again
    with folder.run_of(one).lock(), other.claim(one) as while_it_is_trained:
        assert not while_it_is_trained


@pytest.mark.parametrize(
    ("first", "second", "names"),
    [
        (["model.n_head=1,2"], ["model.n_head=2,3"], ["tiny"]),
        (["model.n_head=1,2", "train.seed=0,1"], ["model.n_head=1,2", "train.seed=1..3"], ["tiny"]),
        (["model.n_head=1,2", "train.seed=0"], ["model.n_head=1,3", "train.seed=1"], ["tiny", "tiny-2"]),
        (["model.n_embd=48,64", "model.n_head=4,8"], ["model.n_embd=24,48", "model.n_head=3,4"], ["tiny", "tiny-2"]),
        (["model.n_head=1,2"], ["model.n_head=1,2", "optim.lr=1e-3,2e-3"], ["tiny", "tiny-2"]),
    ],
    ids=["more values", "more seeds", "a grid with holes", "invalid combinations", "another axis"],
)
def test_a_sweep_can_be_extended_as_long_as_it_stays_a_grid(workplace, first, second, names):
    settings = read_settings(workplace / "tiny.yaml")
    plans = [make_plan(settings, [], values) for values in (first, second)]
    folders = [SweepFolder.open("tiny", plan) for plan in plans]
    assert sorted({folder.path.name for folder in folders}) == names
    for folder, plan in zip(folders, plans, strict=True):
        again = make_plan(read_settings(folder.path / "sweep.yaml"))
        assert {p.name for p in plan.points} <= {p.name for p in again.points}
        assert SweepFolder.open("tiny", plan).path == folder.path


def test_a_failure_in_another_process_is_reported_and_an_earlier_failure_is_retried(workplace):
    folder = tiny_folder(workplace)
    one, two, *_ = folder.plan.points
    folder.note_failure(one, "it was too hot")
    pool = WorkerPool(folder, 1)
    assert pool._is_open(one)
    folder.note_failure(two, "it was too cold")
    assert not pool._is_open(two)
    assert pool.failed == {two.name: "it was too cold"}


def test_a_point_that_another_process_has_just_finished_is_not_run_again(workplace):
    folder = tiny_folder(workplace)
    pool = WorkerPool(folder, 1)
    point, *others = folder.plan.points
    assert train.main(["--resume", str(folder.run_of(point).path)]) == 0
    pool._start_point(point)
    assert pool._jobs == []
    assert list(pool._pending.values()) == others


def test_the_bar_counts_all_steps_of_a_run_that_another_process_finishes(workplace, capsys, monkeypatch):
    monkeypatch.setattr("cli.console._is_usable_terminal", lambda: True)
    folder = tiny_folder(workplace)
    pool, (point, *_) = WorkerPool(folder, 1), folder.plan.points
    with SweepBar(folder) as bar:
        assert train.main(["--resume", str(folder.run_of(point).path)]) == 0
        pool._start_point(point)  # finds that it has finished
        capsys.readouterr()
        bar.refresh()
    assert "| 40/160 [" in capsys.readouterr().err


def test_a_sweep_whose_workers_are_busy_counts_the_runs_that_another_process_begins(workplace, capsys, monkeypatch):
    monkeypatch.setattr("cli.console._is_usable_terminal", lambda: True)
    run_waiting_processes(workplace, monkeypatch)
    folder = tiny_folder(workplace)
    pool, (_, second, third, _) = WorkerPool(folder, 1), folder.plan.points
    with SweepBar(folder) as bar:
        pool._start()
        for point in (second, third):
            assert train.main(["--resume", str(folder.run_of(point).path)]) == 0
        capsys.readouterr()
        pool._read_running()
        bar.refresh()
    pool._stop(signal.SIGTERM)
    assert "| 80/160 [" in capsys.readouterr().err


def test_a_sweep_reads_only_the_runs_that_are_running(workplace, monkeypatch):
    opened = []
    sys.addaudithook(lambda event, arguments: opened.append(str(arguments[0])) if event == "open" else None)
    settings, n_opened = read_settings(workplace / "tiny.yaml"), {}
    run_waiting_processes(workplace, monkeypatch)
    for n_points in (4, 40):
        folder = SweepFolder.open(f"{n_points}", make_plan(settings, [], [f"train.seed=0..{n_points - 1}"]))
        elsewhere = SweepFolder(folder.path, folder.plan)
        pool = WorkerPool(folder, 2)
        with SweepBar(folder) as bar, elsewhere.claim(folder.plan.points[0]):
            pool._start()
            del opened[:]
            for _ in range(3):
                pool._start()
                pool._read_running()
                pool._collect(bar, stopping=False)
                bar.refresh()
            n_opened[n_points] = sum("metrics.jsonl" in file or "failure" in file for file in opened)
            pool._stop(signal.SIGTERM)
    assert n_opened == {4: 9, 40: 9}  # three runs, three times


@pytest.mark.parametrize(
    ("attempt", "cause"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("print('train.py: warning: slow', flush=True); os.kill(os.getpid(), signal.SIGKILL)", "ended by SIGKILL"),
        ("sys.exit(report_errors('train.py', lambda: {}['lr'], memory=''))", "KeyError: 'lr'"),
        ("sys.exit('train.py: the text is damaged')", "the text is damaged"),
    ],
    ids=["a failed import", "a warning before a kill", "a bug", "an error"],
)
def test_the_cause_of_a_failure_comes_from_this_attempt(workplace, monkeypatch, attempt, cause):
    script = workplace / "train.py"
    imports = f"import os, signal, sys; sys.path.append({str(ROOT)!r})\nfrom cli.command import report_errors\n"
    script.write_text(imports + attempt)
    monkeypatch.setattr("training.sweep.workers.TRAIN", script)
    folder = tiny_folder(workplace)
    point = folder.plan.points[0]
    (folder.run_of(point).path / "output.txt").write_text("train.py: the disk is full\n")  # by an earlier attempt
    pool = WorkerPool(folder, 1)
    pool._start()
    pool._jobs[0].process.wait()
    with SweepBar(folder) as bar:
        pool._collect(bar, stopping=False)
    assert pool.failed[point.name].startswith(f"{cause} (status ")


def test_a_point_with_changed_settings_is_an_error(workplace):
    folder = tiny_folder(workplace)
    config = folder.run_of(folder.plan.points[0]).config
    config.write_text(config.read_text().replace("max_steps: 40", "max_steps: 41"))
    with pytest.raises(ValueError, match="its settings were changed"):
        SweepFolder(folder.path, folder.plan)


def test_workers_share_cores_and_gpus(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(9)), raising=False)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    auto, cpu = TrainConfig(), TrainConfig(device="cpu")
    assert share_of_machine(0, 1, auto) == {}
    assert share_of_machine(0, 4, cpu) == {"OMP_NUM_THREADS": "2"}
    assert [share_of_machine(n, 4, auto)["CUDA_VISIBLE_DEVICES"] for n in range(4)] == ["4", "7", "4", "7"]
    assert "CUDA_VISIBLE_DEVICES" not in share_of_machine(0, 4, TrainConfig(device="cuda:1"))
    pair = TrainConfig(processes=2)
    assert share_of_machine(0, 1, pair) == {"OMP_NUM_THREADS": "4"}
    assert share_of_machine(1, 2, pair) == {"OMP_NUM_THREADS": "2", "CUDA_VISIBLE_DEVICES": "4,7"}
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert "OMP_NUM_THREADS" not in share_of_machine(0, 4, cpu)


def test_a_run_without_a_first_checkpoint_restarts_but_a_run_that_lost_its_checkpoint_does_not(workplace, capsys):
    assert train.main(["--config", "tiny.yaml"]) == 0
    run = RunFolder(workplace / "runs" / "tiny")
    whole = untimed(metrics(run.path))
    for path in (run.best, run.latest, run.previous):
        path.unlink()
    assert train.main(["--resume", str(run.path)]) == 2
    assert "its files are missing" in capsys.readouterr().err
    lines = run.metrics.read_text().splitlines()
    last = json.loads(lines[-1]) | {"step": 20}
    run.metrics.write_text(json.dumps(last) + "\n")  # finished at its first save
    assert train.main(["--resume", str(run.path)]) == 2
    run.saved_note.unlink()  # as in a run of an earlier version
    assert train.main(["--resume", str(run.path)]) == 2
    run.metrics.write_text('{"step": 10, "train_loss": 3.0}\n{"step": 20, "val')  # killed in the first save
    assert train.main(["--resume", str(run.path)]) == 0
    assert untimed(metrics(run.path)) == whole
