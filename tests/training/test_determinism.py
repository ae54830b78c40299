"""The same config, seed and machine give the same weights, bit for bit."""

import pytest
import torch
from conftest import run_script
from helpers import assert_same_state

SETTINGS = ["train.deterministic=true", "optim.average_fraction=0.1", "model.conv_width=3"]


def two_runs(workplace, *settings):
    """Train twice in new processes, with a sample at each evaluation, and return both checkpoints."""
    for name in ("a", "b"):
        finished = run_script("train.py", "--config", "tiny.yaml", *SETTINGS, *settings, f"train.name={name}")
        assert finished.returncode == 0, finished.stderr
    return [workplace / "runs" / name / "checkpoints" / "latest.safetensors" for name in ("a", "b")]


@pytest.mark.slow
def test_two_deterministic_runs_on_a_cpu_are_equal(workplace):
    assert_same_state(*two_runs(workplace, "train.device=cpu"))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(
    "settings", [[], ["model.attention=explicit"], ["model.positions=alibi", "train.dtype=float32"]]
)
def test_two_deterministic_runs_on_cuda_are_equal(workplace, settings):
    assert_same_state(*two_runs(workplace, "train.device=cuda", *settings))
