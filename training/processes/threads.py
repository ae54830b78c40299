"""Share the cores of a machine among processes."""

import os
from pathlib import Path

import torch


def n_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def divide_cores(n_processes: int) -> None:
    """Give this process its share of the cores, unless the user has set OMP_NUM_THREADS.

    n_processes: those that torchrun started on this host.
    """
    if n_processes > 1 and not _user_set_threads():
        torch.set_num_threads(max(1, n_cores() // n_processes))


def _user_set_threads() -> bool:
    """Return whether OMP_NUM_THREADS was set before torchrun, which sets it to 1 if it is not."""
    if "OMP_NUM_THREADS" not in os.environ:
        return False
    try:
        when_torchrun_started = Path(f"/proc/{os.getppid()}/environ").read_bytes().split(b"\0")
    except OSError:
        return os.environ["OMP_NUM_THREADS"] != "1"
    return any(variable.startswith(b"OMP_NUM_THREADS=") for variable in when_torchrun_started)
