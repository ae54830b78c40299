import json
import os
import re

import pytest
from conftest import run_script

pytestmark = pytest.mark.slow


def run_gpu(folder, **environment):
    return run_script(".ci/gpu", folder, timeout=None, env=os.environ | environment)


@pytest.mark.nightly
def test_all_steps_pass_and_leave_their_output_and_results(tmp_path):
    finished = run_gpu(tmp_path, DEVICE="cpu")
    assert finished.returncode == 0, finished.stdout
    results = json.loads((tmp_path / "results.json").read_text())
    assert {result["status"] for result in results.values()} == {"passed"}
    for step in ("training", "resuming", "torchrun", "GPT-2"):
        speed, loss = results[step]["figures"]
        assert " characters/s, " in speed and loss.startswith("Best validation loss")
    (speed,) = results["sampling"]["figures"]
    assert re.fullmatch(r"Sampled 32,000 characters in .* characters/s", speed)
    log = (tmp_path / "log.txt").read_text()
    assert [line.removeprefix("== ") for line in log.splitlines() if line.startswith("== ")] == list(results)


def test_a_step_that_runs_out_of_time_is_interrupted_and_the_next_one_starts(tmp_path):
    finished = run_gpu(tmp_path, DEVICE="cpu", LIMIT_S="0")
    assert finished.returncode == 1
    results = json.loads((tmp_path / "results.json").read_text())
    assert len(results) == 7
    assert results["training"]["status"] == results["sampling"]["status"] == "out of time"


@pytest.mark.skipif("NVIDIA_VISIBLE_DEVICES" in os.environ, reason="needs a machine without a GPU")
def test_without_a_gpu_the_script_prints_one_line(tmp_path):
    finished = run_gpu(tmp_path / "out", CUDA_VISIBLE_DEVICES="")
    assert (finished.returncode, finished.stdout) == (1, "")
    assert finished.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()
