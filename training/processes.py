"""The processes of a run: one, or several that torchrun started (distributed data parallelism).

Each has the whole model and computes the gradients of its share of every batch. All take the same steps, and process 0
writes the run's folder.
"""

import contextlib
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from cli.errors import UserError

# Most mistakes are noticed by all processes. Process 0 reports them, and torchrun ends the others in this time.
PATIENCE_S = 5.0


@dataclass(frozen=True)
class Processes:
    """One of `size` processes. rank: its number, 0 to size - 1. local_rank: its number on this host."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    def wrap(self, model: nn.Module) -> nn.Module:
        """Return the model with gradients that are means over all processes."""
        if self.size == 1:
            return model
        with warnings.catch_warnings():
            # PyTorch 2.13 renames the argument, but 2.10 to 2.12 do not know the new name.
            warnings.filterwarnings("ignore", message=".*broadcast_buffers.*")
            return DistributedDataParallel(model, broadcast_buffers=False, gradient_as_bucket_view=True)

    def accumulating(self, wrapped: nn.Module) -> AbstractContextManager:
        """Return a context in which backward passes of a wrapped model add up gradients that are exchanged later."""
        return wrapped.no_sync() if isinstance(wrapped, DistributedDataParallel) else contextlib.nullcontext()

    def sum(self, x: Tensor) -> Tensor:
        """Replace x by the sum of all x, and return it. It has the same bits everywhere."""
        if self.size > 1:
            dist.all_reduce(x)
        return x

    def of_main(self, value: Any) -> Any:
        """Return the value that process 0 has given."""
        values = [value]
        if self.size > 1:
            dist.broadcast_object_list(values)
        return values[0]


@contextlib.contextmanager
def join_processes() -> Iterator[Processes]:
    """Connect this process with the others that torchrun started, if it did."""
    if os.environ.get("WORLD_SIZE", "1") == "1":
        yield Processes()
        return
    if "LOCAL_RANK" not in os.environ:
        raise UserError("WORLD_SIZE is set, but torchrun has not started this process; unset it")
    dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo")
    processes = Processes(dist.get_rank(), dist.get_world_size(), int(os.environ["LOCAL_RANK"]))
    try:
        yield processes
    except UserError:
        if processes.rank:
            time.sleep(PATIENCE_S)
        raise
    dist.destroy_process_group()  # not after an error: it may wait for the others
