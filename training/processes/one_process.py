"""A run in one process, which has nothing to exchange.

`OneProcess` is also the interface through which the training loop, its state and the optimisers talk to the processes
of a run. `DDP` and `FSDP` implement it for several.
"""

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from model.gpt import GPT

T = TypeVar("T")
Matrices = list[Tensor]


class OneProcess:
    """The only process of a run.

    rank: the number of this process, 0 to size - 1. local_rank, local_size: the same among those of this host.
    """

    rank, size, local_rank, local_size = 0, 1, 0, 1

    @property
    def is_main(self) -> bool:
        """Whether this process writes the run's folder and shows progress."""
        return self.rank == 0

    # Starting: all processes open the same run.

    def run_before_restart(self) -> Path | None:
        """Return the folder of the run that these processes trained before they were restarted, or None."""
        return None

    def remember_run(self, folder: Path) -> None:
        """Store the run's folder for the processes that follow after a restart."""

    def from_main(self, work: Callable[[], T]) -> T:
        """Return what work() returns in the main process, which alone calls it. Its mistake ends all processes.

        The result is None, text, numbers or tensors, or lists and dictionaries of these.
        """
        return work()

    def together(self, work: Callable[[], T]) -> T:
        """Return work(). A user's mistake in one process ends all of them, and the first that made it reports it."""
        return work()

    def check_same(self, text: str, reason: str) -> None:
        """Raise UserError with the reason if the text is not the same in all processes."""

    # Training: each process computes a part of every batch.

    def share_of(self, n: int) -> slice:
        """Return the part of n things that is this process's: n / size of them, in order."""
        return slice(self.rank * n // self.size, (self.rank + 1) * n // self.size)

    def place(self, make: Callable[[], GPT], device: torch.device) -> GPT:
        """Return the model that `make` makes on the CPU, or this process's part of it, on the device."""
        return make().to(device)

    def wrap(self, model: nn.Module) -> nn.Module:
        """Return the model with gradients that are means over the processes."""
        return model

    def accumulating(self, wrapped: nn.Module) -> AbstractContextManager:
        """Return a context in which backward passes of a wrapped model add up gradients that are exchanged later."""
        return contextlib.nullcontext()

    def sum(self, x: Tensor) -> Tensor:
        """Replace x by the sum of the processes' x, and return it. It has the same bits in every process."""
        return x

    def largest(self, x: Tensor) -> Tensor:
        """Replace each element of x by the largest of the processes', and return x."""
        return x

    def agree(self, number: int) -> int:
        """Return the largest of the processes' numbers."""
        return number

    # Parts of tensors: a sharded tensor has a part in every process.

    def local(self, x: Tensor) -> Tensor:
        """Return the part of x that this process holds, which shares its memory."""
        return x

    def shard(self, whole: Tensor, like: Tensor) -> Tensor:
        """Return a whole tensor, divided as `like` is."""
        return whole

    def gather(self, x: Tensor) -> Tensor:
        """Return the whole of x in the main process, which may be on the CPU, and anything in the others."""
        return x

    def divide(self, function: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
        """Return function(rows), of which each process may compute a part."""
        return function(rows)

    def on_whole(self, function: Callable[[Matrices], Matrices], parts: Matrices, shapes: list[torch.Size]) -> Matrices:
        """Return this process's parts of function(matrices), from its parts of matrices with these shapes."""
        return function(parts)
