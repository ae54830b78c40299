import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT, run_command
from helpers import assert_mistake, assert_same_state, heed_signals, metrics, train_run, untimed, wait_for

import experiments.sweep.__main__ as command
from data.files import exclusive, is_locked
from experiments.report.find_runs import find_runs
from experiments.sweep.__main__ import main as sweep
from experiments.sweep.plan import make_plan
from experiments.sweep.sweep_folder import SweepFolder
from experiments.sweep.workers import share_of_machine, train_runs
from training.config import TrainConfig
from training.config_file import read_settings
from training.runs.run_folder import RunFolder

SWEEP = ["--config", "tiny.yaml", "model.n_head=1,2", "train.seed=0,1"]
POINTS = ["n_head=1,seed=0", "n_head=2,seed=0", "n_head=1,seed=1", "n_head=2,seed=1"]


def start(*arguments):
    command = [sys.executable, "-m", "experiments.sweep", *arguments]
    options = {"env": os.environ | {"PYTHONPATH": str(ROOT)}, "encoding": "utf-8", "preexec_fn": heed_signals}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def results(folder):
    return {name: untimed(metrics(folder / name)) for name in POINTS}


@pytest.fixture
def by_hand(workplace):
    """Run the four points by hand, as the oracle; return the folder of their runs."""
    for name in POINTS:
        n_head, seed = (part.partition("=")[2] for part in name.split(","))
        train_run(name, f"model.n_head={n_head}", f"train.seed={seed}")
    return workplace / "runs"


@pytest.mark.slow
def test_a_sweep_runs_each_point_once_and_bit_for_bit_as_by_hand(by_hand, workplace, capsys, monkeypatch):
    pages, page = [], workplace / "runs" / "tiny" / "report.html"
    renew = command.renew_report
    monkeypatch.setattr(command, "renew_report", lambda path: (renew(path), pages.append(page.read_text())))
    capsys.readouterr()
    assert sweep([*SWEEP, "--plan"]) == 0
    assert capsys.readouterr().out.splitlines() == [f"runs/tiny/{name}" for name in POINTS]
    assert sweep([*SWEEP, "--workers", "2"]) == 0
    folder = workplace / "runs" / "tiny"
    for name in POINTS:
        assert_same_state(*(RunFolder(each / name).latest for each in (by_hand, folder)))
    assert results(folder) == results(by_hand)
    assert "Report to open in a browser: runs/tiny/report.html" in capsys.readouterr().out
    assert ['http-equiv="refresh"' in each for each in [*pages, page.read_text()]] == [True] * 4 + [False]

    assert sweep(["--resume", "runs/tiny"]) == 0
    assert "Sweep of 4 runs in runs/tiny, 4 finished before" in capsys.readouterr().out
    assert [(folder / name / "output.txt").read_text().count("Running on") for name in POINTS] == [1, 1, 1, 1]
    assert sweep([*SWEEP, "--plan"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.slow
def test_ctrl_c_saves_every_run_and_resume_continues_them(by_hand, workplace):
    process, folder = start(*SWEEP, "--workers", "2"), workplace / "runs" / "tiny"
    wait_for(lambda: any(file.stat().st_size for file in folder.glob("*/metrics.jsonl")), process)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=180)
    assert process.returncode == 130, errors
    assert "-m experiments.sweep --resume runs/tiny --workers=2" in output
    assert "FAILED" not in output
    assert not any(is_locked(folder / name) for name in POINTS)
    assert sweep(["--resume", "runs/tiny"]) == 0
    assert results(folder) == results(by_hand)


@pytest.mark.nightly
def test_a_sweep_that_is_killed_at_any_moment_and_started_again_gives_the_same_results(by_hand, workplace):
    moments, folder = random.Random(0), workplace / "runs" / "tiny"
    for _ in range(6):
        process = start(*SWEEP, "--workers", "2")
        time.sleep(moments.uniform(1.5, 7))
        process.kill()
        process.communicate()
    wait_for(lambda: not any(is_locked(folder / name) for name in POINTS))  # the runs of the last one have ended
    assert sweep(SWEEP) == 0
    assert results(folder) == results(by_hand)
    ours, theirs = find_runs([folder])[0], find_runs([by_hand / name for name in POINTS])[0]
    assert [(v.label, v.losses) for v in ours] == [(v.label, v.losses) for v in theirs]


@pytest.mark.slow
def test_a_failed_run_is_reported_and_does_not_stop_the_others(workplace, capsys):
    # With a learning rate of 1e12, every update after the first has a loss that is not finite.
    failing = ["optim.lr=1e12,1e-3", "optim.name=adamw", "model.logit_softcap=0", "model.norm=layer"]
    assert sweep(["--config", "tiny.yaml", *failing]) == 1
    said = capsys.readouterr()
    (reason,) = (workplace / "runs/tiny/lr=1e+12,seed=0/error.txt").read_text().splitlines()
    assert f"lr=1e+12,seed=0: FAILED, {reason} (full output: " in said.out
    assert "optim.lr" in reason
    assert "lr=0.001,seed=0: validation loss" in said.out
    assert not (workplace / "runs/tiny/lr=0.001,seed=0/error.txt").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["model.block_size=16,100000"], "too short"),
        (["train.device=cpu,cuda:99"], "cuda:99"),
        (["data.corpus=text.txt,texd.txt"], "texd.txt: no such file"),
        (["model.n_head=1,5"], "experiments.sweep: the sweep has invalid runs, 1 of 2: model.n_head=5"),
        (["--model.n_head=1,2"], "settings have no dashes"),
        (["--workers", "0"], "must be a whole number, at least 1"),
        (["--resume", "runs/tiny"], "give --config FILE to start a sweep, or --resume FOLDER to resume one"),
    ],
)
def test_invalid_sweeps_are_reported_before_any_run_starts(workplace, capsys, arguments, message):
    assert_mistake(capsys, sweep, ["--config", "tiny.yaml", *arguments], message)
    assert not (workplace / "runs").exists()


def test_a_folder_that_cannot_be_resumed_is_reported_in_one_line(workplace, capsys):
    assert_mistake(capsys, sweep, ["--resume", "runs"], "is not the folder of a sweep")
    assert sweep([*SWEEP, "--plan"]) == 0
    again = ["--resume", "runs/tiny"]
    assert_mistake(capsys, sweep, [*again, "train.seed=0..3"], "repeat the first command with more values")
    with exclusive(Path("runs/tiny"), "unused"):
        assert_mistake(capsys, sweep, again, "runs/tiny: another process is running this sweep")


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "ended by signal 9 (Killed)"),
        ("raise SystemExit(3)", "exit status 3"),
        ("import sys; open(sys.argv[2] + '/error.txt', 'w').write('it is damaged\\n'); 1 / 0", "it is damaged"),
    ],
)
@pytest.mark.usefixtures("workplace")
def test_a_sweep_goes_on_if_a_run_fails_and_gives_the_reason_of_this_attempt(monkeypatch, program, why):
    monkeypatch.setattr("experiments.sweep.workers.TRAIN", Path("program.py").absolute())
    Path("program.py").write_text(program)
    folder = SweepFolder.open("tiny", make_plan(read_settings(Path("tiny.yaml")), ["train.seed=0,1"]))
    run, other = map(folder.run_of, folder.plan.points)
    run.error.write_text("an earlier error\n")
    run.metrics.write_text("{\n")  # damaged
    runs, reasons = [(folder.run_of(point), point.config.train) for point in folder.unfinished()], {}
    train_runs(runs, 1, lambda run, reason: reasons.update({run.path: reason}))
    assert reasons == {each.path: f"{why} (full output: {each.path / 'output.txt'})" for each in (run, other)}


def test_a_link_in_place_of_a_point_is_refused_and_its_target_stays(workplace, capsys):
    assert sweep([*SWEEP, "--plan"]) == 0
    point = Path("runs/tiny") / POINTS[0]
    shutil.rmtree(point)
    Path("elsewhere").mkdir()
    point.symlink_to(Path("elsewhere").resolve())
    for arguments in (["--resume", "runs/tiny"], SWEEP):
        assert_mistake(capsys, sweep, arguments, f"{point} is a link")
    assert not list(Path("elsewhere").iterdir())


def test_a_point_whose_config_was_edited_is_an_error_that_advises_to_delete_nothing(workplace, capsys):
    assert sweep(["--config", "tiny.yaml", "--plan"]) == 0
    (config,) = (workplace / "runs/tiny").glob("*/config.yaml")
    config.write_text(config.read_text().replace("muon_lr: 0.02", "muon_lr: 0.04"))
    message = "no longer fits runs/tiny/sweep.yaml (optim.muon_lr was 0.02 and is 0.04); restore"
    assert_mistake(capsys, sweep, ["--resume", "runs/tiny"], message)


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
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert "OMP_NUM_THREADS" not in share_of_machine(0, 4, cpu)


@pytest.mark.nightly
@pytest.mark.parametrize("engine", ["submitit", "ray"])
def test_the_engines_on_the_page_of_scaling_train_a_planned_sweep(workplace, engine, by_hand):
    pytest.importorskip(engine)
    page = (ROOT / "experiments" / "studies" / "scaling.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (program,) = [block for block in blocks if re.search(rf"\b{engine}\b", block)]
    assert sweep([*SWEEP, "--plan"]) == 0
    paths = "".join(f"runs/tiny/{name}\n" for name in POINTS)
    (workplace / "points.txt").write_text(paths)
    (workplace / "train.py").symlink_to(ROOT / "train.py")
    finished = run_command([sys.executable, "-c", program])
    assert finished.returncode == 0, finished.stderr
    assert results(workplace / "runs" / "tiny") == results(by_hand)
