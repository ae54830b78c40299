import os
import re
import subprocess
import sys

import pytest
from conftest import ROOT


def spin_count(*command, **variables):
    """Return the spin count that OpenMP reports when a command starts."""
    environment = {k: v for k, v in os.environ.items() if k not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    environment |= {"OMP_DISPLAY_ENV": "VERBOSE", **variables}
    process = subprocess.run(
        [sys.executable, *command, "--help"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100
    )
    found = re.search(r"GOMP_SPINCOUNT = '(\d+)'", process.stderr)
    if not found:
        pytest.skip("this build of PyTorch does not use GNU OpenMP")
    return int(found[1])


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ["train.py"],
        ["sample.py"],
        ["-m", "experiments.heads"],
    ],
    ids=" ".join,
)
def test_openmp_threads_of_every_command_spin_for_a_short_time(command):
    assert spin_count(*command) == 8000


@pytest.mark.slow
def test_a_spin_count_or_wait_policy_set_by_the_user_is_kept():
    assert spin_count("train.py", GOMP_SPINCOUNT="77") == 77
    assert spin_count("train.py", OMP_WAIT_POLICY="active") > 1_000_000
