"""Sweeps as a user runs them: in separate processes, in parallel, stopped and killed."""

import os
import random
import re
import signal
import subprocess
import sys
import time

import pytest
import yaml
from conftest import ROOT, run_script
from helpers import assert_same_but_for_the_name, heed_signals, metrics, untimed

import train
from experiments.report.runs import find_runs
from training.runs.run_folder import RunFolder

SWEEP = ["--sweep", "model.n_head=1,2", "train.seed=0,1"]
POINTS = ["n_head=1,seed=0", "n_head=2,seed=0", "n_head=1,seed=1", "n_head=2,seed=1"]


def sweep_command(*arguments):
    return [sys.executable, str(ROOT / "train.py"), *arguments]


def start(*arguments, **options):
    return subprocess.Popen(
        sweep_command(*arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_signals,
        encoding="utf-8",
        **options,
    )


def n_begun(folder):
    """Return how often the run of each point was started or resumed."""
    return [(folder / name / "output.txt").read_text().count("Running on") for name in POINTS]


def results(folder):
    return {name: untimed(metrics(folder / name)) for name in POINTS}


@pytest.fixture
def tiny_sweep(workplace):
    """Run the four points by hand, as the oracle; return their records by name, and their folders."""
    for name in POINTS:
        n_head, seed = (part.partition("=")[2] for part in name.split(","))
        overrides = [f"model.n_head={n_head}", f"train.seed={seed}", f"train.name={name}"]
        assert train.main(["--config", "tiny.yaml", *overrides]) == 0
    return workplace / "runs"


@pytest.mark.slow
def test_a_sweep_runs_each_point_once_and_bit_for_bit_as_by_hand(tiny_sweep, workplace):
    finished = run_script("train.py", "--config", "tiny.yaml", *SWEEP, "--workers", "2")
    assert finished.returncode == 0, finished.stderr
    folder = workplace / "runs" / "tiny"
    for name in POINTS:
        assert_same_but_for_the_name(
            tiny_sweep / name / "checkpoints/latest.pt", folder / name / "checkpoints/latest.pt"
        )
    assert results(folder) == results(tiny_sweep)
    assert "Report to open in a browser: runs/tiny/report.html" in finished.stdout

    before = {file: file.stat().st_mtime_ns for file in folder.glob("*/metrics.jsonl")}
    again = run_script("train.py", "--config", "tiny.yaml", *SWEEP)
    assert again.returncode == 0, again.stderr
    assert "Sweep of 4 runs in runs/tiny, 4 finished before" in again.stdout
    assert {file: file.stat().st_mtime_ns for file in before} == before
    assert n_begun(folder) == [1, 1, 1, 1]


def small_sweep_with_matplotlib(workplace, source):
    """Run a sweep of two short runs, whose report imports this source as matplotlib."""
    (workplace / "modules").mkdir()
    (workplace / "modules" / "matplotlib.py").write_text(source, encoding="utf-8")
    (workplace / "experiments.py").write_text("raise ImportError('this is not the project')", encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(workplace / "modules")}
    return start(
        "--config", "tiny.yaml", "train.max_steps=2", "--sweep", "model.n_head=1,2", env=environment, process_group=0
    )


@pytest.mark.slow
def test_a_failed_report_produces_a_one_line_error_and_keeps_the_sweeps_status(workplace):
    process = small_sweep_with_matplotlib(workplace, "raise RuntimeError('a broken installation')")
    _, errors = process.communicate(timeout=100)
    assert process.returncode == 0
    assert errors == "train.py: the report was not written: RuntimeError: a broken installation\n"


@pytest.mark.slow
def test_ctrl_c_while_the_report_is_written_gives_no_traceback(workplace):
    process = small_sweep_with_matplotlib(workplace, "import time; open('begun', 'w').close(); time.sleep(60)")
    while process.poll() is None and not (workplace / "begun").exists():
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to this process and to the report's
    _, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (130, "")


@pytest.mark.slow
def test_more_values_extend_a_sweep_and_other_settings_start_a_new_folder(workplace):
    few = run_script("train.py", "--config", "tiny.yaml", "--sweep", "model.n_head=1,2")
    more = run_script("train.py", "--config", "tiny.yaml", "--sweep", "model.n_head=1,2,3")
    other = run_script("train.py", "--config", "tiny.yaml", "train.max_steps=3", "--sweep", "model.n_head=1,2")
    assert [finished.returncode for finished in (few, more, other)] == [0, 0, 0]
    assert "Sweep of 3 runs in runs/tiny, 2 finished before" in more.stdout
    assert len(find_runs([workplace / "runs" / "tiny"]).variants) == 3
    assert "Sweep of 2 runs in runs/tiny-2" in other.stdout
    assert "runs/tiny contains another run or sweep; using a new folder" in other.stdout


@pytest.mark.slow
def test_a_sweep_of_an_earlier_version_can_be_resumed_and_reported(workplace):
    earlier = ["model.qk_scale=sqrt_head_size", "train.max_steps=5"]
    assert train.main(["--config", "tiny.yaml", *earlier, "--sweep", "model.n_head=1,2", "train.seed=0"]) == 0
    folder = workplace / "runs" / "tiny"
    files = [folder / "sweep.yaml", *folder.glob("*/config.yaml")]
    assert len(files) == 3
    for file in files:  # as that version wrote them
        settings = yaml.safe_load(file.read_text(encoding="utf-8"))
        del settings["model"]["qk_scale"], settings["data"]["split"]
        settings["data"]["val_fraction"] = 0.1
        file.write_text(yaml.safe_dump(settings), encoding="utf-8")
    assert train.main(["--resume", str(folder)]) == 0
    runs = find_runs([folder])
    assert [v.config.model.qk_scale for v in runs.variants] == ["sqrt_head_size"] * 2
    assert [v.config.data.split for v in runs.variants] == [(0.9, 0.1, 0.0)] * 2


@pytest.mark.slow
def test_two_processes_in_one_folder_never_run_a_point_twice(workplace):
    both = [start("--config", "tiny.yaml", *SWEEP, "--workers", str(n)) for n in (1, 2)]
    for process in both:
        _, errors = process.communicate(timeout=200)
        assert process.returncode == 0, errors
    folder = workplace / "runs" / "tiny"
    assert [path.name for path in (workplace / "runs").iterdir() if path.is_dir()] == ["tiny"]
    assert n_begun(folder) == [1, 1, 1, 1]
    assert all(records[-1]["finished"] for records in results(folder).values())


@pytest.mark.slow
def test_ctrl_c_saves_every_run_and_resume_continues_them(tiny_sweep, workplace):
    settings = ["train.max_steps=40"]  # as in the file
    process = start("--config", "tiny.yaml", *settings, *SWEEP, "--workers", "2")
    folder = workplace / "runs" / "tiny"
    while process.poll() is None and not any(map(has_records, folder.glob("*/metrics.jsonl"))):
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=100)
    assert process.returncode == 130, errors
    assert "--resume runs/tiny" in output
    assert all(not RunFolder(folder / name).is_locked() for name in POINTS)
    resumed = run_script("train.py", "--resume", "runs/tiny")
    assert resumed.returncode == 0, resumed.stderr
    assert results(folder) == results(tiny_sweep)


def has_records(path):
    return path.stat().st_size > 0


# With a learning rate of 1e30, every update after the first has a loss that is not finite.
FAILING = ["optim.name=adamw", "model.logit_softcap=0", "model.norm=layer"]


@pytest.mark.slow
def test_a_failed_run_is_reported_and_does_not_stop_the_others(workplace):
    finished = run_script(
        "train.py", "--config", "tiny.yaml", *FAILING, "--sweep", "optim.lr=1e30,1e-3", "train.seed=0"
    )
    assert finished.returncode == 1
    assert "lr=1e+30,seed=0 failed: 10 updates in a row were skipped" in finished.stderr
    assert "lr=0.001,seed=0: validation loss" in finished.stdout
    assert "Traceback" not in finished.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sweep", "model.n_head=1,5"], "the sweep has invalid runs, 1 of 2: model.n_head=5 does not divide"),
        (["--sweep", "model.block_size=16,100000"], "too short"),
        (["--sweep", "train.device=cpu,cuda:99"], "cuda:99"),
        (["--sweep", "data.corpus=text.txt,texd.txt"], "texd.txt"),
        (["--workers", "2"], "--workers is for sweeps"),
        (["--workers", "0", *SWEEP], "--workers must be at least 1"),
    ],
)
def test_invalid_sweeps_are_reported_before_any_run_starts(workplace, capsys, arguments, message):
    try:
        status = train.main(["--config", "tiny.yaml", *arguments])
    except SystemExit as error:
        status = error.code
    said = capsys.readouterr().err
    assert status == 2
    assert message in said
    assert said.count("\n") == 1
    assert not (workplace / "runs").exists()


@pytest.mark.slow
def test_a_sweep_that_is_killed_at_any_moment_and_started_again_gives_the_same_results(tiny_sweep, workplace):
    moments = random.Random(0)
    folder = workplace / "runs" / "tiny"
    for _ in range(6):
        process = start("--config", "tiny.yaml", *SWEEP, "--workers", "2")
        time.sleep(moments.uniform(1.5, 7))
        process.kill()
        process.communicate()
    last = run_script("train.py", "--config", "tiny.yaml", *SWEEP, "--workers", "2")
    assert last.returncode == 0, last.stderr
    assert results(folder) == results(tiny_sweep)
    ours, by_hand = find_runs([folder]), find_runs([tiny_sweep / name for name in POINTS])
    assert [(v.label, v.losses) for v in ours.variants] == [(v.label, v.losses) for v in by_hand.variants]


@pytest.mark.slow
def test_a_resumed_run_keeps_its_number_of_threads(workplace):
    settings = ["--config", "tiny.yaml", "train.max_steps=2000", "train.checkpoint_every_steps=100", *SWEEP]
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    folder = workplace / "runs" / "tiny"
    process = start(*settings, "--workers", str(os.cpu_count() or 1), env=environment)
    while process.poll() is None and not list(folder.glob("*/checkpoints/latest.pt")):
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=100)
    begun = [name for name in POINTS if (folder / name / "checkpoints/latest.pt").exists()]
    process = start("--resume", "runs/tiny", env=environment)
    while process.poll() is None and "resuming" not in (folder / begun[0] / "output.txt").read_text():
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=100)
    said = (folder / begun[0] / "output.txt").read_text()
    threads = re.findall(r"^Running on cpu, (\d+) thread", said, re.MULTILINE)
    assert threads == ["1", "1"]
