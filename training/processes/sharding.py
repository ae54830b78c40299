"""Shard a model among processes: each holds a part of every parameter, gradient and optimiser state.

This is fully sharded data parallelism (Zhao et al., 2023, "PyTorch FSDP"). A block's whole parameters exist only while
it computes. PyTorch's `fully_shard` divides each parameter by rows: process r has the r-th of the pieces that
`Tensor.chunk` returns.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from model.gpt import GPT
from training.optim.muon import Muon
from training.processes.distributed import World, local
from training.runs.checkpoint import CheckpointError


def sharded(make: Callable[[], GPT], device: torch.device, world: World) -> GPT:
    """Return the model that `make` returns, sharded. Only the main process makes it as a whole, on the CPU."""
    mesh = init_device_mesh(device.type, (world.size,))
    with torch.device("meta"):
        model = make()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    # By default, the root would stay whole after an evaluation.
    fully_shard(model, mesh=mesh, reshard_after_forward=True)
    model.to_empty(device=device)
    whole = make() if world.is_main else None
    values = dict(whole.state_dict(keep_vars=True)) | dict(whole.named_buffers()) if whole else {}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            fill(parameter, values[name].detach() if whole else torch.empty(parameter.shape))
        for name, buffer in model.named_buffers():
            if whole:
                buffer.copy_(values[name])
            dist.broadcast(buffer, src=0)
        # FSDP allocates its buffers in the first pass. Those of an evaluation, in inference mode, could not be trained.
        model(torch.zeros(1, 1, dtype=torch.long, device=device))
    return model


def copied(make: Callable[[], GPT], device: torch.device, world: World, model: GPT) -> GPT:
    """Return a second sharded model with the weights of the first, which `make` also makes."""
    copy = sharded(make, device, world)
    copy.load_state_dict(model.state_dict())
    return copy


def fill(x: Tensor, whole: Tensor, *, is_part: bool = False) -> None:
    """Give x its part of a whole tensor of the main process; the other processes pass one of the same shape.

    is_part: every process passes its own part instead.
    """
    if is_part:
        local(x).copy_(whole)
    elif isinstance(x, DTensor):
        whole = torch.empty(whole.shape) if whole.is_meta else whole
        whole = whole.to(device=x.device, dtype=x.dtype)
        local(x).copy_(local(distribute_tensor(whole, x.device_mesh, x.placements)))
    else:
        x.copy_(whole)


def whole(values: Mapping[str, Any], world: World) -> dict[str, Any]:
    """Return values with whole tensors: in the main process on the CPU, in the others empty. All must call it."""
    result = dict(values)
    for name, x in values.items():
        if isinstance(x, DTensor):
            gathered = x.full_tensor()
            result[name] = gathered.cpu() if world.is_main else torch.empty(0)
    return result


def parts(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with this process's parts of the tensors, copied to the CPU."""
    return {name: local(x).detach().to("cpu", copy=True) if isinstance(x, Tensor) else x for name, x in values.items()}


def fill_all(model: GPT, weights: Mapping[str, Tensor], *, is_part: bool) -> None:
    """Load weights into a sharded model: whole ones or, if is_part, this process's parts.

    Raises CheckpointError if they are not of this model.
    """
    parameters = dict(model.named_parameters())
    for name, parameter in parameters.items():
        shape = local(parameter).shape if is_part else parameter.shape
        if name not in weights or weights[name].shape != shape:
            raise CheckpointError(f"the checkpoint's weights do not fit its settings ({name})")
    with torch.no_grad():
        for name, parameter in parameters.items():
            fill(parameter, weights[name], is_part=is_part)


def sharded_state(
    optimizer: Optimizer, state: Mapping[int, Mapping[str, Any]], *, is_part: bool
) -> dict[int, dict[str, Any]]:
    """Return an optimiser's state, by the numbers of its parameters, with tensors sharded as the parameters are.

    state: with whole tensors or, if is_part, with this process's parts.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    result: dict[int, dict[str, Any]] = {}
    with torch.no_grad():
        for number, values in state.items():
            result[number] = dict(values)
            for name, value in values.items():
                shape = local(parameters[number]).shape if is_part else parameters[number].shape
                if isinstance(value, Tensor) and value.shape == shape:
                    result[number][name] = torch.empty_like(parameters[number])
                    fill(result[number][name], value, is_part=is_part)
    return result


class ShardedMuon(Muon):
    """Muon for sharded matrices. processes: those that share them.

    Process i % size receives the whole matrix i, orthogonalises it and returns the parts. So no process repeats the
    work of another; each sends and receives about twice the size of its shards in a step, and holds 1 / size of the
    matrices of one shape as a whole.
    """

    def __init__(self, params: Iterable[Tensor], *, processes: World, **settings):
        super().__init__(params, **settings)
        self.processes = processes

    def part(self, x: Tensor) -> Tensor:
        return local(x)

    def orthogonalised(self, updates: list[Tensor], shapes: list[torch.Size]) -> list[Tensor]:
        results: dict[int, Tensor] = {}
        for shape in dict.fromkeys(shapes):
            numbers = [i for i, other in enumerate(shapes) if other == shape]
            parts = self._exchange(shape, [updates[i] for i in numbers])
            results |= zip(numbers, parts, strict=True)
        return [results[i] for i in range(len(shapes))]

    def _exchange(self, shape: torch.Size, parts: list[Tensor]) -> list[Tensor]:
        """Return this process's parts of the orthogonalised matrices of one shape."""
        rank, size = self.processes.rank, self.processes.size
        rows, columns = shape
        piece = parts[0].new_zeros(-(-rows // size), columns)  # every process sends as much
        mine = []
        for i, part in enumerate(parts):
            piece[: len(part)] = part
            pieces = [torch.empty_like(piece) for _ in range(size)] if i % size == rank else None
            dist.gather(piece, pieces, dst=i % size)
            if pieces:
                mine.append(torch.cat(pieces)[:rows])
        done = iter(super().orthogonalised(mine, [shape] * len(mine)) if mine else [])
        results = []
        for i, part in enumerate(parts):
            received, pieces = torch.empty_like(piece), None
            if i % size == rank:
                padded = piece.new_zeros(size * len(piece), columns)
                padded[:rows] = next(done)
                pieces = list(padded.chunk(size))
            dist.scatter(received, pieces, src=i % size)
            results.append(received[: len(part)])
        return results
