"""The processes of a run: one, or several that torchrun started (distributed data parallelism).

Each has the whole model and computes the gradients of its share of every batch. All take the same decisions at the same
step, and process 0 writes the run's folder.
"""

import contextlib
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from cli.errors import UserError

PREPARATION = timedelta(days=2)  # process 0 may encode a huge text while the others wait
GLOO = ("third_party/gloo", "connectFullMesh", "monitoredBarrier")  # signs of Gloo's errors, which have no class


class OneProcess:
    """The only process of a run, which has nothing to exchange.

    rank: its number, 0 to size - 1. local_rank: its number on this host.
    """

    rank, size, local_rank = 0, 1, 0

    @property
    def is_main(self) -> bool:
        """Whether this process writes the run's folder and shows progress."""
        return self.rank == 0

    def start_others(self, n: int) -> None:
        """Replace this process by torchrun, which starts its command n times, unless n is 1 or torchrun started this.

        Raises UserError on Windows, where this is impossible.
        """
        if n == 1 or "WORLD_SIZE" in os.environ:
            return
        if sys.platform == "win32":
            raise UserError(f"train.processes={n} does not work on Windows; set train.processes=1")
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, n_cores() // n)))
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={n}"]
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, *launcher, *sys.argv])

    def share_folder(self, find: Callable[[], Path]) -> Path:
        """Return the folder that find() returns in process 0, which alone calls it."""
        return find()

    def share_of(self, n: int) -> slice:
        """Return the part of n things that is this process's: n / size of them, in order."""
        return slice(self.rank * n // self.size, (self.rank + 1) * n // self.size)

    def wrap(self, model: nn.Module) -> nn.Module:
        """Return the model with gradients that are means over all."""
        return model

    def accumulating(self, wrapped: nn.Module) -> AbstractContextManager:
        """Return a context in which backward passes of a wrapped model add up gradients that are exchanged later."""
        return contextlib.nullcontext()

    def sum(self, x: Tensor) -> Tensor:
        """Replace x by the sum of all x, and return it. It has the same bits everywhere."""
        return x

    def agree(self, number: int) -> int:
        """Return the largest number of all."""
        return number


ONE_PROCESS = OneProcess()


class DDP(OneProcess):
    """One process of several. store: torchrun's key-value store, which outlives a restart."""

    def __init__(self, rank: int, size: int, local_rank: int, store: dist.Store):
        self.rank, self.size, self.local_rank, self.store = rank, size, local_rank, store

    def share_folder(self, find: Callable[[], Path]) -> Path:
        key = "run"  # after a restart it is set already, so that the run is resumed
        if self.is_main and not self.store.check([key]):
            self.store.set(key, os.fsencode(find()).hex())  # a path may not be UTF-8, but the store's values are
        self.store.wait([key], PREPARATION)
        return Path(os.fsdecode(bytes.fromhex(self.store.get(key).decode())))

    def wrap(self, model: nn.Module) -> nn.Module:
        with warnings.catch_warnings():
            # PyTorch 2.13 renames the argument, but 2.10 to 2.12 do not know the new name.
            warnings.filterwarnings("ignore", message=".*broadcast_buffers.*")
            return DistributedDataParallel(model, broadcast_buffers=False, gradient_as_bucket_view=True)

    def accumulating(self, wrapped: nn.Module) -> AbstractContextManager:
        assert isinstance(wrapped, DistributedDataParallel)
        return wrapped.no_sync()

    def sum(self, x: Tensor) -> Tensor:
        dist.all_reduce(x)
        return x

    def agree(self, number: int) -> int:
        largest = torch.tensor(number)
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        return int(largest)


class LostProcessError(UserError):
    """Another process of the run has ended or cannot be reached, so this one cannot go on."""

    status = 1


@contextlib.contextmanager
def join_processes(limit_s: float) -> Iterator[OneProcess]:
    """Connect this process with the others that torchrun started, if it did.

    limit_s: a process that waits this long for another one ends. Raises LostProcessError if another one is lost.
    """
    environment = os.environ
    if environment.get("WORLD_SIZE", "1") == "1":
        yield ONE_PROCESS
        return
    if not 0 < limit_s <= 1e6:
        raise UserError("--timeout must be above 0 and at most 1,000,000")
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT", "MASTER_ADDR")
    if missing := [name for name in names if not environment.get(name)]:
        raise UserError(
            f"WORLD_SIZE is set, but {' and '.join(missing)} not; start train.py with torchrun, or unset it"
        )
    rank, size, local_rank, port = (int(environment[name]) for name in names[:-1])
    hosts_store = rank == 0 and environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    limit, attempt = timedelta(seconds=limit_s), environment.get("TORCHELASTIC_RESTART_COUNT", "0")
    with naming_lost(rank):
        store = dist.TCPStore(environment["MASTER_ADDR"], port, is_master=hosts_store, timeout=limit)
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo",
            store=dist.PrefixStore(f"attempt {attempt}", store),  # without the addresses before a restart
            rank=rank,
            world_size=size,
            timeout=limit,
        )
        yield DDP(rank, size, local_rank, store)
        dist.destroy_process_group()  # not after an error: it may wait for the others


@contextlib.contextmanager
def naming_lost(rank: int) -> Iterator[None]:
    """Turn an error of the connection between process `rank` and the others into a LostProcessError."""
    try:
        yield
    except RuntimeError as error:
        if not (isinstance(error, dist.DistError) or any(sign in str(error) for sign in GLOO)):
            raise
        reason = re.sub(r"^\[.*?\] ", "", str(error).splitlines()[0])  # without the place in PyTorch's source
        raise LostProcessError(
            f"process {rank}: another process of this run has ended or cannot be reached ({reason.partition('. ')[0]})"
        ) from None


def n_cores(quota: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Return the number of cores that this process may use, by its affinity and the quota of its container."""
    n = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):  # the file is missing or says "max"
        allowed, period = map(int, quota.read_text().split())
        n = max(1, min(n, allowed // period))
    return n
