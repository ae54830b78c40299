"""The command .ci/gpu, run on the CPU."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT


def load_step_runner():
    spec = importlib.util.spec_from_file_location("step_runner", ROOT / ".ci" / "step_runner.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_gpu(project, *arguments, **environment):
    """Run a project's .ci/gpu with the Python of this test."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = ["bash", str(project / ".ci" / "gpu"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PATH": path} | environment)


def is_running(pid):
    try:
        return "zombie" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_step_that_runs_out_of_time_ends_with_its_children_and_keeps_its_output(tmp_path):
    sleep = f"{sys.executable!r}, '-c', 'import time; time.sleep(60)'"
    script = f"import subprocess, time; p = subprocess.Popen([{sleep}]); print(p.pid, flush=True); time.sleep(60)"
    runner = load_step_runner().StepRunner(tmp_path, tmp_path, {"gpu": None, "torch": "2"}, limit_s=0)
    runner.end_s = time.monotonic() + 4
    step = runner.run("sleeping", [sys.executable, "-c", script], share=0.5)
    assert step["status"] == "out of time"
    assert 1 < step["seconds"] < 30
    child = int(step["tail"][-1])
    deadline_s = time.monotonic() + 20  # a killed process may take a moment to end
    while is_running(child) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert not is_running(child)
    assert json.loads((tmp_path / "results.json").read_text())["steps"] == [step]


def test_the_log_of_a_step_is_cut_to_its_end_if_it_is_too_long(tmp_path):
    runner = load_step_runner().StepRunner(tmp_path, tmp_path, {"gpu": None, "torch": "2"}, limit_s=100)
    runner.run("talking", [sys.executable, "-c", "print('x' * 1_000_000); print('the end')"], share=1)
    content = (tmp_path / "log.txt").read_text()
    assert len(content) < 200_000
    assert content.endswith("the end\n")


@pytest.mark.slow
@pytest.mark.skipif("NVIDIA_VISIBLE_DEVICES" in os.environ, reason="needs a machine without a GPU")
def test_without_a_gpu_the_command_prints_a_one_line_error(tmp_path):
    finished = run_gpu(ROOT, tmp_path / "out", CUDA_VISIBLE_DEVICES="")
    assert (finished.returncode, finished.stdout) == (2, "")
    assert "finds no CUDA device" in finished.stderr
    assert finished.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_failed_step_is_listed_and_the_other_steps_still_run(tmp_path):
    project, out = tmp_path / "project", tmp_path / "out"
    ignored = shutil.ignore_patterns(".git", "cache", "__pycache__", ".venv", "*.svg")
    shutil.copytree(ROOT, project, ignore=ignored)
    shutil.rmtree(project / "runs", ignore_errors=True)
    for folder in ("cli", "data", "experiments", "model", "training"):  # tests/test_cuda.py is enough to collect twice
        shutil.rmtree(project / "tests" / folder)
    (project / "tests" / "test_broken.py").write_text("def test_cuda_is_broken():\n    assert 1 + 1 == 3\n")
    finished = run_gpu(project, out, DEVICE="cpu", OMP_NUM_THREADS="1")
    results = json.loads((out / "results.json").read_text())
    failed = [step["name"] for step in results["steps"] if step["status"] != "passed"]
    assert failed == ["CUDA tests", "CUDA tests that failed, again"], finished.stdout
    assert "1 failed in" in results["steps"][-2]["value"]  # the other tests do not run again
    assert finished.returncode == 1
    assert finished.stdout.count("FAILURE:") == 2
    assert "test_cuda_is_broken" in finished.stdout.split("FAILURE: CUDA tests")[1]

    steps = {step["name"]: step for step in results["steps"]}
    for name in ("shakespeare.yaml", "shakespeare_gpt2.yaml"):
        assert [record["step"] for record in steps[name]["evaluations"]] == [2, 4]
    assert steps["sampling, streams: 64"]["characters_per_s"] > 0
    assert any(figure["name"] == "encoding, ASCII" for figure in steps["benchmark"]["figures"])
    table = (out / "table.md").read_text().splitlines()
    assert table[1] == "|---|---|---|"
    assert all(line.count("|") == 4 for line in table)
    assert len(list(out.iterdir())) <= 7
    assert all(path.stat().st_size < 1e6 for path in out.iterdir())
