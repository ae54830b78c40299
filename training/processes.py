"""Several processes that torchrun started train one run (distributed data parallelism).

Process 0 does what a single process does. The others have no folder and no output: they receive its state, and take its
steps with their shares of each batch.
"""

import contextlib
import dataclasses
import gc
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from cli.errors import UserError
from data.corpus import open_corpus
from training.runtime import prepare_machine
from training.state import TrainingState
from training.step import TrainingStep


@contextlib.contextmanager
def joined_processes() -> Iterator[None]:
    """Connect this process with the others. When process 0 leaves the context, all end.

    The others never enter it: they follow process 0, and exit.
    """
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group()
    if dist.get_rank() > 0:
        _follow()
        _leave()
        sys.exit(0)
    try:
        yield
    except UserError:
        _give(None)
        raise
    _give(None)
    _leave()


def _leave() -> None:
    """Leave the group, without the wrapped model, whose threads would outlive it and abort the process at its end."""
    gc.collect()
    dist.destroy_process_group()


def first_shared_step(state: TrainingState) -> "SharedStep":
    """Give the state of a run to the other processes, and return the step that all take."""
    dtype: Any = str(state.runtime.dtype).removeprefix("torch.")  # each process would choose `auto` for itself
    config = dataclasses.replace(state.config, train=dataclasses.replace(state.config.train, dtype=dtype))
    _give((config, state.progress, {name: x.cpu() for name, x in state.tensors().items()}))
    return SharedStep(state)


def _follow() -> None:
    """Take each step of process 0 in another process."""
    for number in (signal.SIGINT, signal.SIGTERM):  # process 0 decides when all end
        signal.signal(number, signal.SIG_IGN)
    if received := _receive():
        config, *saved = received
        state = TrainingState(config, open_corpus(config.data), prepare_machine(config))
        state.load(*saved)
        step = SharedStep(state)
        while _receive():
            step.run()


class SharedStep(TrainingStep):
    """A step that all processes take together: the gradients are means over their shares of the batch."""

    def __init__(self, state: TrainingState):
        super().__init__(state)
        self.model = DistributedDataParallel(state.model, broadcast_buffers=False, gradient_as_bucket_view=True)
        self.update = self.update_weights  # which waits for the other processes, so it cannot be a graph

    def run(self) -> None:
        _give("step")
        super().run()

    def update_weights(self, inputs: Tensor, targets: Tensor) -> None:
        rank, size, loss_sum = dist.get_rank(), dist.get_world_size(), self.state.loss_sum
        torch.manual_seed(torch.initial_seed() + rank)  # each share has its own dropout
        before = loss_sum.clone()
        loss_sum.zero_()
        super().update_weights(inputs.chunk(size, dim=1)[rank], targets.chunk(size, dim=1)[rank])
        dist.all_reduce(loss_sum)
        loss_sum.div_(size).add_(before)


def _give(value: Any) -> None:
    """Give a value to the other processes, if this is process 0."""
    if dist.get_rank() == 0:
        dist.broadcast_object_list([value])


def _receive() -> Any:
    """Return the next value that process 0 gives."""
    values = [None]
    dist.broadcast_object_list(values)
    return values[0]
