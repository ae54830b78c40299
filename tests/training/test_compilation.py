import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from conftest import ROOT, run_script
from helpers import heed_signals, wait_for

from training.runs.checkpoint import load_checkpoint

pytestmark = pytest.mark.slow
COMPILED = ["--config", "tiny.yaml", "train.compile=true", "train.dtype=float32", "train.device=cpu"]
COMPILED += ["model.n_layer=1", "model.dropout=0", "train.max_steps=3"]


def test_a_missing_compiler_produces_a_one_line_error(workplace):
    finished = run_script("train.py", *COMPILED, env=os.environ | {"CXX": "/nonexistent"})
    assert finished.returncode == 2
    assert finished.stderr == "train.py: train.compile=true needs a compiler; install g++ or set train.compile=false\n"
    assert not (workplace / "runs").exists()


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
    wait_for(lambda: "cc1plus" in subprocess.run(shown, capture_output=True, text=True).stdout, process)
    time.sleep(later_s)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=200)
    if process.returncode == 0:
        pytest.skip("the run was finished before the signal came")
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert load_checkpoint(workplace / "runs/tiny/checkpoints/latest.safetensors").step <= 3
