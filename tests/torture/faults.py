"""Faults: signals to a running session, a full disk, and damaged files between two sessions."""

import contextlib
import os
import random
import resource
import signal
import subprocess
import time
from pathlib import Path

from training.runs.checkpoint import CheckpointError, load_checkpoint
from training.runs.run_folder import RunFolder

POLL_S = 0.001
SECOND_SIGNAL_AFTER_S = 0.6  # one Ctrl-C may arrive several times within half a second


def send(number: signal.Signals, process: subprocess.Popen, rng: random.Random) -> bool:
    """Send a signal, to one of the process's workers if there are several; return whether the process still ran."""
    is_running = process.poll() is None
    workers = children(process)
    if workers and (number == signal.SIGKILL or rng.random() < 0.5):
        with contextlib.suppress(ProcessLookupError):
            os.kill(rng.choice(workers), number)
    else:
        process.send_signal(number)  # does nothing to a process that has ended
    return is_running


def children(process: subprocess.Popen) -> list[int]:
    """Return the numbers of the processes that torchrun has started; an ordinary run has none."""
    try:
        return list(map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()))
    except OSError:
        return []


def send_twice(process: subprocess.Popen, rng: random.Random) -> bool:
    """Press Ctrl-C twice; return whether the process still ran at the first. The second one ends it while it saves."""
    is_running = send(signal.SIGINT, process, rng)
    wait(process, rng.uniform(0, SECOND_SIGNAL_AFTER_S))
    send(signal.SIGINT, process, rng)
    return is_running


def kill_during_save(run: RunFolder, process: subprocess.Popen, _: random.Random) -> bool:
    """Kill the process as soon as a checkpoint is being written; return whether that came."""
    while process.poll() is None:
        if any(run.latest.parent.glob("*.part")):
            with contextlib.suppress(ProcessLookupError):
                os.kill((children(process) or [process.pid])[0], signal.SIGKILL)  # the main process of several
            return True
        time.sleep(POLL_S)
    return False


def cut_while_running(path: Path, process: subprocess.Popen, rng: random.Random) -> bool:
    """Cut a file; return whether the process still ran and there was something to cut."""
    if process.poll() is not None or not has_content(path):
        return False
    truncate(path, rng)
    return True


def prepare(disk_bytes: int | None) -> None:
    """In a new process: heed signals that the parent may ignore, and let no file grow beyond disk_bytes."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    if disk_bytes is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (disk_bytes, disk_bytes))


def flip_bit(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def truncate(path: Path, rng: random.Random) -> None:
    os.truncate(path, rng.randrange(path.stat().st_size))


def fill_with_zeros(path: Path, _: random.Random) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def expendable_checkpoint(run: RunFolder) -> Path | None:
    """Return the latest checkpoint if an intact one remains without it, or None."""
    try:
        load_checkpoint(run.previous)
    except CheckpointError:
        return None
    return run.latest


def wait(process: subprocess.Popen, seconds: float) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
