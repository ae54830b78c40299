from pathlib import Path

import pytest
from conftest import run_script
from helpers import assert_same_state

from training.runs.run_folder import RunFolder


def two_runs(*settings):
    """Train twice in new processes, with a sample at each evaluation, and return both checkpoints."""
    common = ["optim.average_fraction=0.1", "model.conv_width=3", *settings]
    for _ in range(2):
        finished = run_script("train.py", "--config", "tiny.yaml", *common)
        assert finished.returncode == 0, finished.stderr
    return [RunFolder(Path("runs") / name).latest for name in ("tiny", "tiny-2")]


@pytest.mark.slow
def test_two_runs_on_a_cpu_are_equal(workplace):
    assert_same_state(*two_runs("train.device=cpu"))
