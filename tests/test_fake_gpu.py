"""The tests of test_cuda.py on a GPU that the CPU simulates; fake_gpu/fake_gpu.py says what this can show."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import ROOT, run_command

FAKE_GPU = ROOT / "tests" / "fake_gpu"
# FIRST: captures with few kernels, and mistakes in captured code. ALL: every test that the simulation can run.
FIRST = "kernels or every_kind and muon and default or cannot or once"
ALL = "not move and not behind and not explicit_form"
CHOICES = [pytest.param(FIRST, marks=pytest.mark.slow), pytest.param(ALL, marks=pytest.mark.nightly)]


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU runs test_cuda.py itself")
@pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
@pytest.mark.parametrize("choice", CHOICES)
def test_the_gpu_tests_pass_and_only_captures_fail_that_a_test_expects_to_fail(tmp_path, choice):
    guard, torch_folder = tmp_path / "guard.so", Path(torch.__file__).parent
    folders = [f"-I{torch_folder}/include", f"-L{torch_folder}/lib", f"-Wl,-rpath,{torch_folder}/lib"]
    compile_it = ["g++", FAKE_GPU / "guard.cpp", "-std=c++20", "-shared", "-fPIC", *folders, "-o", guard]
    subprocess.run([*compile_it, "-lc10", "-ltorch_cpu"], check=True)
    command = [sys.executable, "-m", "pytest", "-p", "fake_gpu", "-W", "error:running without a CUDA graph"]
    environment = os.environ | {"PYTHONPATH": str(FAKE_GPU), "FAKE_GPU_GUARD": str(guard)}
    finished = run_command([*command, "-k", choice, "tests/test_cuda.py"], cwd=ROOT, env=environment, timeout=None)
    assert finished.returncode == 0, finished.stdout[-5000:] + finished.stderr[-5000:]
