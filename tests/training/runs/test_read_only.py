"""Folders that cannot be written, as read-only mounts: root ignores file permissions."""

import os
import subprocess

import pytest
from conftest import TINY_CONFIG, TINY_TEXT, run_script

pytestmark = [pytest.mark.slow, pytest.mark.root]


@pytest.fixture
def read_only(tmp_path):
    """Return a folder with a config and a text, mounted so that nothing can be written."""
    folder = tmp_path / "mounted"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)]
    if os.name != "posix" or os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs root and the right to mount")
    try:
        (folder / "tiny.yaml").write_text(TINY_CONFIG, encoding="utf-8")
        (folder / "text.txt").write_text(TINY_TEXT, encoding="utf-8")
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def remount(folder, *options):
    subprocess.run(["mount", "-o", ",".join(["remount", *options]), str(folder)], check=True)


def test_a_run_in_a_read_only_folder_is_an_error_before_any_training(read_only):
    remount(read_only, "ro")
    failed = run_script("train.py", "--config", "tiny.yaml", cwd=read_only)
    assert failed.returncode == 2
    (line,) = failed.stderr.splitlines()
    assert line == "train.py: runs: Read-only file system"
    assert "step" not in failed.stdout


def test_resuming_a_read_only_run_is_an_error_and_its_checkpoints_can_still_be_sampled(read_only):
    assert run_script("train.py", "--config", "tiny.yaml", cwd=read_only).returncode == 0
    remount(read_only, "ro")
    failed = run_script("train.py", "--resume", "runs/tiny", "train.max_steps=50", cwd=read_only)
    assert failed.returncode == 2
    (line,) = failed.stderr.splitlines()
    assert "runs/tiny/lock: Read-only file system" in line
    sampled = run_script("sample.py", "--length", "20", cwd=read_only)
    assert sampled.returncode == 0, sampled.stderr


def test_a_disk_that_fills_up_during_a_run_keeps_its_checkpoints(read_only):
    """The mounted disk has 16 MB, of which a file takes all but a part of a checkpoint."""
    assert run_script("train.py", "--config", "tiny.yaml", cwd=read_only).returncode == 0
    size = (read_only / "runs/tiny/checkpoints/latest.pt").stat().st_size
    free = os.statvfs(read_only)
    (read_only / "filler").write_bytes(bytes(free.f_bavail * free.f_bsize - size // 2))
    failed = run_script("train.py", "--resume", "runs/tiny", "train.max_steps=60", cwd=read_only)
    assert failed.returncode == 1
    (line,) = failed.stderr.splitlines()
    assert "could not be saved (No space left on device)" in line
    (read_only / "filler").unlink()
    assert run_script("train.py", "--resume", "runs/tiny", "train.max_steps=60", cwd=read_only).returncode == 0
