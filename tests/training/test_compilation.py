import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch
from conftest import ROOT, run_script
from helpers import heed_signals, wait_for

import train
from training.runs.checkpoint import load_checkpoint

pytestmark = pytest.mark.slow
COMPILED = ["--config", "tiny.yaml", "train.compile=true", "train.dtype=float32", "train.device=cpu"]
COMPILED += ["model.n_layer=1", "model.dropout=0", "train.max_steps=3"]


@pytest.mark.parametrize("problem", ["no compiler", "a broken compiler", "a folder with a space"])
def test_if_nothing_can_be_compiled_one_line_says_so_before_there_is_a_run(workplace, problem):
    broken, spaced = workplace / "g++", workplace / "with space"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    spaced.mkdir()
    variables = {"no compiler": {"CXX": "/nonexistent"}, "a broken compiler": {"CXX": str(broken)}}
    variables["a folder with a space"] = {"TMPDIR": str(spaced)}
    environment = {name: value for name, value in os.environ.items() if name != "TORCHINDUCTOR_CACHE_DIR"}
    finished = run_script("train.py", *COMPILED, env=environment | variables[problem])
    (line,) = finished.stderr.splitlines()
    assert (finished.returncode, finished.stdout) == (2, "")
    assert line.startswith("train.py: train.compile=true does not work here (")
    assert line.endswith("; install g++, or set train.compile=false")
    assert not (workplace / "runs").exists()


@pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler")
def test_a_compiled_run_leaves_the_arithmetic_of_its_process_as_it_was(workplace):
    def settings():
        return torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory

    before = settings()
    assert train.main(COMPILED) == 0
    assert settings() == before


@pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler")
@pytest.mark.nightly
@pytest.mark.parametrize("later_s", [0, 3])
def test_ctrl_c_while_a_compiler_runs_saves_a_checkpoint(workplace, later_s):
    """The signal reaches all processes of the terminal, the compiler included."""
    command = [sys.executable, str(ROOT / "train.py"), *COMPILED]
    options = {"env": os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(workplace / "cache")}, "preexec_fn": heed_signals}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, start_new_session=True, **options, **pipes)
    shown = ["ps", "-s", str(process.pid), "-o", "comm="]
    wait_for((workplace / "runs/tiny/checkpoints/latest.safetensors").exists, process)
    wait_for(lambda: "cc1plus" in subprocess.run(shown, capture_output=True, text=True).stdout, process)
    time.sleep(later_s)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=200)
    if process.returncode == 0:
        pytest.skip("the run was finished before the signal came")
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert load_checkpoint(workplace / "runs/tiny/checkpoints/latest.safetensors").step <= 3
