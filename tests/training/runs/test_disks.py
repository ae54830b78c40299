"""Disks that are full, by a limit on the size of files that the operating system enforces, or read-only, by a mount."""

import functools
import os
import resource
import subprocess

import pytest
from conftest import run_script, train_tiny, write_tiny

from training.runs.checkpoint import load_checkpoint

pytestmark = pytest.mark.slow


def with_limit(n_bytes):
    return functools.partial(resource.setrlimit, resource.RLIMIT_FSIZE, (n_bytes, n_bytes))


def one_line(failed, *statuses):
    assert failed.returncode in statuses, failed.stderr
    (line,) = failed.stderr.splitlines()
    return line


def test_a_checkpoint_that_cannot_be_written_leaves_the_earlier_ones_and_says_how_to_resume(workplace):
    train_tiny(workplace, "train.max_steps=20")
    checkpoints = workplace / "runs/tiny/checkpoints"
    before = {path.name: path.read_bytes() for path in checkpoints.iterdir()}
    size = len(before["latest.safetensors"])
    more = ["train.py", "--resume", "runs/tiny", "train.max_steps=40"]
    line = one_line(run_script(*more, preexec_fn=with_limit(size // 2)), 1)
    assert line == "train.py: File too large; fix this, then resume with --resume runs/tiny"
    assert {path.name: path.read_bytes() for path in checkpoints.iterdir()} == before
    assert run_script(*more).returncode == 0
    assert load_checkpoint(checkpoints / "latest.safetensors").step == 40


def test_a_run_whose_first_checkpoint_cannot_be_written_can_be_resumed(workplace):
    line = one_line(run_script("train.py", "--config", "tiny.yaml", preexec_fn=with_limit(20_000)), 1)
    assert "fix this, then resume with --resume runs/tiny" in line
    assert not list(workplace.rglob("*.part"))
    assert run_script("train.py", "--resume", "runs/tiny").returncode == 0


def test_a_text_that_cannot_be_encoded_is_an_error_of_one_line(workplace):
    (workplace / "long.txt").write_text("abcdefgh\n" * 400_000, encoding="utf-8")
    failed = run_script("train.py", "--config", "tiny.yaml", "data.corpus=long.txt", preexec_fn=with_limit(1_000_000))
    assert one_line(failed, 2) == "train.py: File too large"


@pytest.fixture
def mounted(tmp_path):
    """Return a mounted folder with the tiny config and text."""
    folder = tmp_path / "mounted"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)]
    if os.name != "posix" or os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs root and the right to mount")
    try:
        write_tiny(folder)
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.root  # who ignores file permissions
def test_a_read_only_folder_is_an_error_before_any_training_and_its_checkpoints_can_be_sampled(mounted):
    assert run_script("train.py", "--config", "tiny.yaml", cwd=mounted).returncode == 0
    subprocess.run(["mount", "-o", "remount,ro", str(mounted)], check=True)
    new = run_script("train.py", "--config", "tiny.yaml", cwd=mounted)
    assert one_line(new, 2) == "train.py: runs/tiny-2: Read-only file system"
    assert new.stdout == ""
    resumed = run_script("train.py", "--resume", "runs/tiny", "train.max_steps=50", cwd=mounted)
    assert "runs/tiny/lock: Read-only file system" in one_line(resumed, 2)
    assert run_script("sample.py", "--length", "20", cwd=mounted).returncode == 0
