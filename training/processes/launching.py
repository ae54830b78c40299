"""Start the processes of a run, connect them, and share the cores among them."""

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

import torch
import torch.distributed as dist

from cli.errors import UserError
from training.processes.ddp import DDP, reaching_others
from training.processes.one_process import OneProcess

PREPARATION = timedelta(days=2)  # a process may encode a huge text while the others wait


def become_torchrun(n_processes: int, arguments: Sequence[str]) -> NoReturn:
    """Replace this process by torchrun, which starts n_processes of train.py with these arguments on this machine.

    Raises UserError on Windows, where a process cannot be replaced.
    """
    if sys.platform == "win32":
        raise UserError(f"train.processes={n_processes} does not work on Windows; set train.processes=1")
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, n_cores() // n_processes)))
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={n_processes}"]
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, *launcher, sys.argv[0], *arguments])


@contextlib.contextmanager
def join_processes(limit_s: float) -> Iterator[OneProcess]:
    """Connect this process with the others that torchrun started, if it did, and give it its share of the cores.

    If the user has set OMP_NUM_THREADS, that is its share. limit_s: a process that waits this long for another one
    ends. Raises LostProcessError if the others cannot be reached.
    """
    environment = os.environ
    if "WORLD_SIZE" not in environment:
        yield OneProcess()
        return
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT")
    missing = [name for name in names if not environment.get(name, "").isdecimal()]
    missing += ["MASTER_ADDR"] * ("MASTER_ADDR" not in environment)
    if missing:
        raise UserError(
            f"the environment variable WORLD_SIZE is set, but {' and '.join(missing)} not, as torchrun would; "
            "start the processes with torchrun, or unset WORLD_SIZE"
        )
    rank, size, local_rank, local_size, port = (int(environment[name]) for name in names)
    if prepare := stop_with(os.getppid()):
        prepare()  # without torchrun, nothing would restart or end this process
    limit = timedelta(seconds=limit_s)
    attempt = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
    hosts_store = rank == 0 and environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    with reaching_others(rank):
        store = dist.TCPStore(environment["MASTER_ADDR"], port, is_master=hosts_store, timeout=limit)
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo",
            # PyTorch's own rendezvous would find the addresses of the processes before the restart.
            store=dist.PrefixStore(f"attempt {attempt}", store),
            rank=rank,
            world_size=size,
            timeout=limit,
        )
        patient = dist.new_group(backend="gloo", timeout=PREPARATION)
        if local_size > 1 and not _user_set_threads():
            torch.set_num_threads(max(1, n_cores() // local_size))
        yield DDP(rank, size, local_rank, local_size, store, patient)
        dist.destroy_process_group()  # not after an error: it may wait for the others


def for_parallel(processes: OneProcess, parallel: str) -> OneProcess:
    """Return the processes as `train.parallel` uses them: one process is the same in both ways."""
    if parallel == "ddp" or processes.size == 1:
        return processes
    from training.processes.fsdp import FSDP  # takes half a second

    return FSDP(**vars(processes))


def stop_with(parent: int) -> Callable[[], None] | None:
    """Return a function for Linux: once it is called, this process saves and stops if its parent process dies.

    It is safe between a fork and an exec. parent: the number of the parent process. None on other systems.
    """
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)  # loaded before the fork: little is safe after it
    pr_set_pdeathsig = 1  # from linux/prctl.h

    def prepare() -> None:
        libc.prctl(pr_set_pdeathsig, signal.SIGTERM)
        if os.getppid() != parent:  # the parent died before prctl
            os._exit(1)

    return prepare


def n_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _user_set_threads() -> bool:
    """Return whether OMP_NUM_THREADS was set before torchrun, which sets it to 1 if it is not."""
    if "OMP_NUM_THREADS" not in os.environ:
        return False
    try:
        when_torchrun_started = Path(f"/proc/{os.getppid()}/environ").read_bytes().split(b"\0")
    except OSError:
        return os.environ["OMP_NUM_THREADS"] != "1"
    return any(variable.startswith(b"OMP_NUM_THREADS=") for variable in when_torchrun_started)
