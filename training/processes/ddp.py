"""Several processes with a whole model each (distributed data parallelism), connected by PyTorch's process groups.

Each computes the gradients of its share of every batch, and all take the same decisions at the same step.
"""

import contextlib
import hashlib
import io
import os
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from cli.errors import UserError, is_for_user
from training.processes.one_process import OneProcess, T

GLOO = ("third_party/gloo", "connectFullMesh", "monitoredBarrier")  # signs of Gloo's errors, which have no class
RUN = "run"  # key of the run's folder in torchrun's store, which outlives a restart of the processes


class LostProcessError(UserError):
    """Another process of the run has ended or cannot be reached, so this one cannot go on."""

    status = 1


class OtherProcessError(UserError):
    """Another process of the run reports its error; this one ends without a message."""


class DDP(OneProcess):
    """One of several processes that torchrun started.

    store: torchrun's key-value store. patient: a group of all processes with a much longer time limit.
    """

    def __init__(
        self, rank: int, size: int, local_rank: int, local_size: int, store: dist.Store, patient: dist.ProcessGroup
    ):
        self.rank, self.size, self.local_rank, self.local_size = rank, size, local_rank, local_size
        self.store, self.patient = store, patient

    def run_before_restart(self) -> Path | None:
        return Path(os.fsdecode(bytes.fromhex(self.store.get(RUN).decode()))) if self.store.check([RUN]) else None

    def remember_run(self, folder: Path) -> None:
        if self.is_main:
            self.store.set(RUN, os.fsencode(folder).hex())  # a path may not be UTF-8, but the store's values are

    def from_main(self, work: Callable[[], T]) -> T:
        result = self.together(work if self.is_main else lambda: None)
        packed = io.BytesIO()
        torch.save(result, packed)
        size = torch.tensor(len(packed.getbuffer()))
        dist.broadcast(size, src=0)
        content = torch.empty(int(size), dtype=torch.uint8)
        if self.is_main:
            content = torch.frombuffer(packed.getbuffer(), dtype=torch.uint8)
        dist.broadcast(content, src=0)
        if result is not None:
            return result
        return torch.load(io.BytesIO(content.numpy().tobytes()), weights_only=True)

    def together(self, work: Callable[[], T]) -> T:
        mistake = None
        try:
            result = work()
        except Exception as error:
            if not is_for_user(error):
                raise
            mistake = error
        try:
            dist.barrier(group=self.patient)
            first = self.size - self.agree(self.size - self.rank if mistake else 0)  # size if none has a mistake
        except RuntimeError:
            if mistake:
                raise mistake from None  # a process that waited for this one has given up
            raise
        if mistake and first == self.rank:
            raise mistake
        if first < self.size:
            raise OtherProcessError
        return result

    def check_same(self, text: str, reason: str) -> None:
        digest = torch.tensor(list(hashlib.sha256(text.encode()).digest()))
        if (self._gather_all(digest) != digest).any():
            raise UserError(reason) if self.is_main else OtherProcessError

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

    def largest(self, x: Tensor) -> Tensor:
        dist.all_reduce(x, dist.ReduceOp.MAX)
        return x

    def agree(self, number: int) -> int:
        return int(self.largest(torch.tensor(number)))

    def divide(self, function: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
        """Return function(rows), where each process computes the same number of rows and receives the others."""
        n = -(-len(rows) // self.size)  # the last processes may have fewer; they repeat the last row
        mine = torch.arange(self.rank * n, (self.rank + 1) * n, device=rows.device).clamp(max=len(rows) - 1)
        result = function(rows[mine]).contiguous()
        return self._gather_all(result).flatten(0, 1)[: len(rows)]

    def _gather_all(self, x: Tensor) -> Tensor:
        """Return x of every process, (size, *x.shape)."""
        gathered = x.new_empty(self.size, *x.shape)
        dist.all_gather(list(gathered.unbind()), x)
        return gathered


@contextlib.contextmanager
def reaching_others(rank: int) -> Iterator[None]:
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
