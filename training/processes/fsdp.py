"""Several processes that share one model: each holds a part of every parameter, gradient and optimiser state.

This is fully sharded data parallelism (Zhao et al., 2023, "PyTorch FSDP"). A block's whole parameters exist only while
it computes. PyTorch's `fully_shard` divides each parameter by rows: process r has the r-th of the pieces that
`Tensor.chunk` returns. Importing this module takes half a second.
"""

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from model.gpt import GPT
from training.processes.ddp import DDP
from training.processes.one_process import Matrices


class FSDP(DDP):
    """One of several processes among which the model is divided."""

    def place(self, make: Callable[[], GPT], device: torch.device) -> GPT:
        """Return this process's part of the model. Every process makes the whole on the CPU, equal in all."""
        mesh = init_device_mesh(device.type, (self.size,))
        model = make()
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        # By default, the root would stay whole after an evaluation.
        fully_shard(model, mesh=mesh, reshard_after_forward=True)
        # FSDP allocates its buffers in the first pass. Those of an evaluation, in inference mode, could not be trained.
        with torch.no_grad():
            model(torch.zeros(1, 1, dtype=torch.long, device=device))
        return model

    def wrap(self, model: nn.Module) -> nn.Module:
        return model

    def accumulating(self, wrapped: nn.Module) -> AbstractContextManager:
        return contextlib.nullcontext()  # gradients are always exchanged, or each process would store them all

    def local(self, x: Tensor) -> Tensor:
        return x.to_local() if isinstance(x, DTensor) else x

    def shard(self, whole: Tensor, like: Tensor) -> Tensor:
        if not isinstance(like, DTensor):
            return whole
        whole = whole.to(device=like.device, dtype=like.dtype)
        return distribute_tensor(whole, like.device_mesh, like.placements, src_data_rank=None)  # all have the whole

    def gather(self, x: Tensor) -> Tensor:
        if not isinstance(x, DTensor):
            return x
        whole = x.full_tensor()
        return whole.cpu() if self.is_main else torch.empty(0)

    def divide(self, function: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
        return function(rows)  # each process has other rows: see `on_whole`

    def on_whole(self, function: Callable[[Matrices], Matrices], parts: Matrices, shapes: list[torch.Size]) -> Matrices:
        """Return this process's parts of function(matrices), from its parts of matrices with these shapes.

        Process i % size receives the whole of matrix i of a shape and returns the parts of the result. So no process
        repeats the work of another; each sends and receives about twice the size of its parts, and holds 1 / size of
        the matrices of one shape as a whole.
        """
        results: dict[int, Tensor] = {}
        for shape in dict.fromkeys(shapes):
            numbers = [i for i, other in enumerate(shapes) if other == shape]
            results |= zip(numbers, self._exchange(function, [parts[i] for i in numbers], shape), strict=True)
        return [results[i] for i in range(len(shapes))]

    def _exchange(self, function: Callable[[Matrices], Matrices], parts: Matrices, shape: torch.Size) -> Matrices:
        rows, columns = shape
        piece = parts[0].new_zeros(-(-rows // self.size), columns)  # equally large in every process
        mine = []
        for i, part in enumerate(parts):
            piece[: len(part)] = part
            pieces = [torch.empty_like(piece) for _ in range(self.size)] if i % self.size == self.rank else None
            dist.gather(piece, pieces, dst=i % self.size)
            if pieces:
                mine.append(torch.cat(pieces)[:rows])
        done = iter(function(mine) if mine else [])
        results = []
        for i, part in enumerate(parts):
            received, pieces = torch.empty_like(piece), None
            if i % self.size == self.rank:
                padded = piece.new_zeros(self.size * len(piece), columns)
                padded[:rows] = next(done)
                pieces = list(padded.chunk(self.size))
            dist.scatter(received, pieces, src=i % self.size)
            results.append(received[: len(part)])
        return results
