"""Several processes that train one model: torchrun starts them, and PyTorch's process groups connect them.

Every process holds the state of the run, or a part of it (`training.processes.sharding`), and computes the gradients of
its share of each batch. All take the same decisions at the same step. Process 0 shows progress and writes the run's
folder, but each process may write its part of a checkpoint.
"""

import contextlib
import hashlib
import os
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from cli.errors import LONGEST_LINE, UserError, explain
from training.processes.launching import stop_with
from training.processes.threads import divide_cores

PREPARATION = timedelta(days=2)  # a process may encode a huge text while the others wait
MESSAGE_BYTES = 4 * LONGEST_LINE
GLOO = ("third_party/gloo", "connectFullMesh", "monitoredBarrier")  # signs of Gloo's errors, which have no class
RUN = "run"  # key of the run's folder in torchrun's store, which outlives a restart of the processes


class LostProcessError(RuntimeError):
    """Another process of the run has ended or cannot be reached, so this one cannot go on."""


class OtherProcessError(Exception):
    """Another process of the run reports its error; this one ends without a message."""


@dataclass(frozen=True)
class World:
    """The processes of a run, and the ways in which they exchange values. Without torchrun there is one.

    rank: the number of this process, 0 to size - 1. local_rank, local_size: the same among those of this host.
    store: torchrun's key-value store. patient: a group of all processes whose members wait for each other for long.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    store: dist.Store | None = None
    patient: dist.ProcessGroup | None = None

    @property
    def is_main(self) -> bool:
        """Whether this process writes the run's folder and shows progress."""
        return self.rank == 0

    def run_before_restart(self) -> Path | None:
        """Return the folder of the run that these processes trained before torchrun restarted them."""
        if self.store is None or not self.store.check([RUN]):
            return None
        return Path(self.store.get(RUN).decode())

    def remember_run(self, folder: Path) -> None:
        """Store the run's folder for the processes that torchrun starts after a failure."""
        if self.store is not None and self.is_main:
            self.store.set(RUN, str(folder))

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Make a user's mistake in one process end all of them; the first process that made it reports it."""
        try:
            yield
            mistake: Exception | None = None
        except (UserError, OSError) as error:
            mistake = error
        if self.size > 1:
            message = _shortened(explain(mistake)) if mistake else ""
            try:
                dist.barrier(group=self.patient)
                messages = self._gather_text(message)
            except RuntimeError:
                if mistake:
                    raise mistake from None  # a process that waited for this one has given up
                raise
            if any(messages) and message in ("", *messages[: self.rank]):
                raise OtherProcessError
        if mistake:
            raise mistake

    def check_same(self, text: str, reason: str) -> None:
        """Raise UserError with the reason if the text is not the same in all processes."""
        digest = hashlib.sha256(text.encode()).hexdigest()
        if self.size > 1 and len(set(self._gather_text(digest))) > 1:
            raise UserError(reason)

    def share(self, content: bytes) -> bytes:
        """Return the content that process 0 has."""
        if self.size == 1:
            return content
        size = torch.tensor(len(content))
        dist.broadcast(size, src=0)
        buffer = torch.empty(int(size), dtype=torch.uint8)
        if self.is_main and content:
            buffer.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
        dist.broadcast(buffer, src=0)
        return content if self.is_main else buffer.numpy().tobytes()

    def agree(self, number: int) -> int:
        """Return the largest of the processes' numbers."""
        if self.size == 1:
            return number
        return int(self.largest(torch.tensor(number)))

    def add(self, x: Tensor) -> Tensor:
        """Replace x by the sum of the processes' x, and return it. It has the same bits in every process."""
        if self.size > 1:
            dist.all_reduce(x)
        return x

    def largest(self, x: Tensor) -> Tensor:
        """Replace each element of x by the largest of the processes', and return x."""
        if self.size > 1:
            dist.all_reduce(x, dist.ReduceOp.MAX)
        return x

    def share_of(self, n: int) -> slice:
        """Return the part of n things that is this process's: n / size of them, in order."""
        return slice(self.rank * n // self.size, (self.rank + 1) * n // self.size)

    def divide(self, function: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
        """Return function(rows), where each process computes the same number of rows and receives the others."""
        if self.size == 1:
            return function(rows)
        n = -(-len(rows) // self.size)  # the last processes may have fewer; they repeat the last row
        mine = torch.arange(self.rank * n, (self.rank + 1) * n, device=rows.device).clamp(max=len(rows) - 1)
        result = function(rows[mine]).contiguous()
        return self._gather(result).flatten(0, 1)[: len(rows)]

    def parallel(self, model: nn.Module) -> nn.Module:
        """Return the model with gradients that are means over the processes.

        That is the model itself if there is one process, or if it is sharded.
        """
        if self.size == 1 or is_sharded(model):
            return model
        with warnings.catch_warnings():
            # PyTorch 2.13 renames the argument, but 2.10 to 2.12 do not know the new name.
            warnings.filterwarnings("ignore", message=".*broadcast_buffers.*")
            return DistributedDataParallel(model, broadcast_buffers=False, gradient_as_bucket_view=True)

    def gradients(self, model: nn.Module, *, exchange: bool) -> AbstractContextManager:
        """Return a context in which a backward pass exchanges gradients, or adds them up until the next exchange.

        model: as returned by `parallel`. A sharded model always exchanges them, or each process would store them all.
        """
        if exchange or not isinstance(model, DistributedDataParallel):
            return contextlib.nullcontext()
        return model.no_sync()

    def _gather_text(self, text: str) -> list[str]:
        mine = torch.zeros(MESSAGE_BYTES, dtype=torch.uint8)
        if content := text.encode():
            mine[: len(content)] = torch.frombuffer(bytearray(content), dtype=torch.uint8)
        return [bytes(row).rstrip(b"\0").decode() for row in self._gather(mine).tolist()]

    def _gather(self, x: Tensor) -> Tensor:
        """Return x of every process, (size, *x.shape)."""
        gathered = x.new_empty(self.size, *x.shape)
        dist.all_gather(list(gathered.unbind()), x)
        return gathered


ALONE = World()


@contextlib.contextmanager
def join_world(limit_s: float) -> Iterator[World]:
    """Connect this process with the others that torchrun started, and give it its share of the cores.

    limit_s: a process that waits this long for another one ends. Raises LostProcessError if the others cannot be
    reached.
    """
    environment = os.environ
    if "WORLD_SIZE" not in environment:
        yield ALONE
        return
    numbers = {name: _number(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT")}
    missing = [name for name, number in numbers.items() if number < 0]
    missing += ["MASTER_ADDR"] * ("MASTER_ADDR" not in environment)
    if missing:
        raise UserError(
            f"the environment variable WORLD_SIZE is set, but {' and '.join(missing)} not, as torchrun would; "
            "start the processes with torchrun, or unset WORLD_SIZE"
        )
    rank, size, local_rank, local_size, port = numbers.values()
    if prepare := stop_with(os.getppid()):
        prepare()  # without torchrun, nothing would restart or end this process
    limit = timedelta(seconds=limit_s)
    attempt = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
    hosts_store = rank == 0 and environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    with reaching_others():
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
        divide_cores(local_size)
        yield World(rank, size, local_rank, local_size, store, patient)
        dist.destroy_process_group()  # not after an error: it may wait for the others


def _number(variable: str) -> int:
    """Return an environment variable that torchrun sets, or -1 if it is not a number."""
    value = os.environ.get(variable, "")
    return int(value) if value.isdecimal() else -1


def _shortened(message: str) -> str:
    return message.encode(errors="backslashreplace")[:MESSAGE_BYTES].decode(errors="ignore")


def is_sharded(model: nn.Module) -> bool:
    """Return whether `training.processes.sharding` has divided the model. Its class takes half a second to import."""
    return hasattr(model, "set_requires_gradient_sync")


def local(x: Tensor) -> Tensor:
    """Return the part of x that this process holds, which shares its memory; x itself if it is not sharded."""
    return x.to_local() if hasattr(x, "to_local") else x


@contextlib.contextmanager
def reaching_others() -> Iterator[None]:
    """Turn an error of the connection with the other processes into a LostProcessError."""
    try:
        yield
    except RuntimeError as error:
        is_lost = isinstance(error, dist.DistError) or any(sign in str(error) for sign in GLOO)
        if isinstance(error, LostProcessError) or not is_lost:
            raise
        reason = re.sub(r"^\[.*?\] ", "", str(error).splitlines()[0])  # without the place in PyTorch's source
        raise LostProcessError(
            f"process {os.environ.get('RANK')}: another process of this run has ended or cannot be reached "
            f"({reason.partition('. ')[0]})"
        ) from None
