import os
import re
import shlex
import subprocess
import sys

import pytest
from conftest import ROOT


def spin_count(*command, **variables):
    """Return the spin count that OpenMP reports when a command starts."""
    environment = {k: v for k, v in os.environ.items() if k not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    environment |= {"OMP_DISPLAY_ENV": "VERBOSE", **variables}
    process = subprocess.run(
        [sys.executable, *command, "--help"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=180
    )
    found = re.search(r"GOMP_SPINCOUNT = '(\d+)'", process.stderr)
    if not found:
        pytest.skip("this build of PyTorch does not use GNU OpenMP")
    return int(found[1])


@pytest.mark.slow
def test_openmp_threads_of_every_command_spin_for_a_short_time_unless_the_user_chooses():
    assert [spin_count("train.py"), spin_count("sample.py"), spin_count("-m", "experiments.heads")] == [8000] * 3
    assert spin_count("train.py", GOMP_SPINCOUNT="77") == 77
    assert spin_count("train.py", OMP_WAIT_POLICY="active") > 1_000_000


@pytest.mark.parametrize("command", ["train.py", "-I train.py", "-P sample.py", "-m experiments", "-m textbook"])
def test_without_the_libraries_a_command_says_in_one_line_what_to_do(command):
    command = [sys.executable, "-S", *command.split()]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180)
    (line,) = ended.stderr.splitlines()
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "lacks torch, numpy" in line
    assert f"activate the environment (. {ROOT}/.venv/bin/activate)" in line


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_messages_to_closed_descriptors_are_not_written_to_files(tmp_path, closed):
    program = """import cli.startup, os, subprocess, sys
with open(sys.argv[1], "w") as file:
    print("output"), print("a message", file=sys.stderr), os.write(2, b"a signal")
    subprocess.run([sys.executable, "-c", "import os; [os.fstat(n) for n in range(3)]"], check=True)
    file.write(f"{file.fileno() > 2}")
"""
    command = f"{shlex.join([sys.executable, '-c', program, str(tmp_path / 'data')])} {closed}"
    subprocess.run(["bash", "-c", command], cwd=ROOT, check=True, timeout=180)
    assert (tmp_path / "data").read_text() == "True"


def test_a_full_device_is_an_error_at_standard_output_and_only_ends_the_messages_at_standard_error():
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        command = [sys.executable, "-m", "textbook", "99"]
        assert subprocess.run(command, cwd=ROOT, stderr=full, timeout=180).returncode == 2
        command = [sys.executable, "-m", "textbook"]
        ended = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, timeout=180)
    assert (ended.returncode, ended.stderr) == (1, "textbook: standard output: No space left on device\n")
