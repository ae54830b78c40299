"""The tests of test_cuda.py on a GPU that the CPU plays (fake_gpu/fake_gpu.py says what it can show)."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import ROOT

FAKE_GPU = ROOT / "tests" / "fake_gpu"
# They run in other processes, need a compiler, or would show nothing.
NOT_HERE = "not move and not compiled and not memory and not behind"


@pytest.fixture(scope="module")
def guard(tmp_path_factory):
    """Return the library that makes PyTorch believe in a GPU."""
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU, which runs test_cuda.py itself")
    if not shutil.which("g++"):
        pytest.skip("needs g++")
    library, torch_folder = tmp_path_factory.mktemp("guard") / "guard.so", Path(torch.__file__).parent
    folders = [f"-I{torch_folder}/include", f"-L{torch_folder}/lib", f"-Wl,-rpath,{torch_folder}/lib"]
    options = ["-std=c++20", "-shared", "-fPIC", *folders, "-o", library]
    subprocess.run(["g++", FAKE_GPU / "guard.cpp", *options, "-lc10", "-ltorch_cpu"], check=True)
    return library


def run_on_fake_gpu(guard, *choice):
    """Run tests of test_cuda.py; a capture that fails is an error, unless the test expects it."""
    command = [sys.executable, "-m", "pytest", "-p", "fake_gpu", "-W", "error:running without a CUDA graph"]
    environment = os.environ | {"PYTHONPATH": str(FAKE_GPU), "FAKE_GPU_GUARD": str(guard)}
    finished = subprocess.run(
        [*command, *choice, "tests/test_cuda.py"], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert finished.returncode == 0, finished.stdout[-5000:] + finished.stderr[-5000:]
    assert "passed" in finished.stdout or "100%" in finished.stdout


@pytest.mark.slow
def test_steps_and_samplers_are_captured_with_few_kernels_and_mistakes_in_captured_code_are_found(guard):
    run_on_fake_gpu(guard, "-k", "kernels or captured_function or cannot or noticed or once or (every_kind and muon)")


@pytest.mark.nightly
def test_all_tests_of_the_gpu_pass(guard):
    run_on_fake_gpu(guard, "-k", NOT_HERE)
