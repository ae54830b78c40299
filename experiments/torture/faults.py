"""Faults: signals to a running session, a full disk, and damaged files between two sessions."""

import os
import random
import resource
import signal
import subprocess
import time
from pathlib import Path

from training.checkpoint import CheckpointError, load_checkpoint
from training.run_folder import RunFolder

POLL_S = 0.001
SECOND_SIGNAL_AFTER_S = 0.6  # one Ctrl-C may arrive several times within half a second


def send(number: signal.Signals, process: subprocess.Popen, rng: random.Random, duration_s: float) -> None:
    """Send a signal at a random moment."""
    wait(process, rng.uniform(0, duration_s))
    process.send_signal(number)


def send_twice(process: subprocess.Popen, rng: random.Random, duration_s: float) -> None:
    """Press Ctrl-C twice: the second one ends the process at once."""
    send(signal.SIGINT, process, rng, duration_s)
    wait(process, SECOND_SIGNAL_AFTER_S)
    process.send_signal(signal.SIGINT)


def kill_during_save(run: RunFolder, process: subprocess.Popen, rng: random.Random, duration_s: float) -> None:
    """Kill the process while a checkpoint is being written, from a random moment on."""
    wait(process, rng.uniform(0, duration_s))
    while process.poll() is None and not any(run.latest.parent.glob("*.part")):
        time.sleep(POLL_S)
    process.kill()


def prepare(disk_bytes: int | None) -> None:
    """In a new process: heed signals that the parent may ignore, and let no file grow beyond disk_bytes."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    if disk_bytes is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (disk_bytes, disk_bytes))


def flip_bit(path: Path, rng: random.Random) -> None:
    with path.open("r+b") as file:
        position = rng.randrange(path.stat().st_size)
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ 1 << rng.randrange(8)]))


def truncate(path: Path, rng: random.Random) -> None:
    os.truncate(path, rng.randrange(path.stat().st_size))


def fill_with_zeros(path: Path, rng: random.Random) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def expendable_checkpoint(run: RunFolder) -> Path | None:
    """Return the latest checkpoint if an intact one remains without it, or None."""
    try:
        load_checkpoint(run.previous)
    except CheckpointError:
        return None
    return run.latest if run.latest.exists() else None


def wait(process: subprocess.Popen, seconds: float) -> None:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return
