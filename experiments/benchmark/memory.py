"""Peak memory of a process, and how that of a training step grows with the context."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F

from experiments.benchmark.figures import Figure
from model.config import ModelConfig
from model.gpt import GPT
from training.runtime import choose_runtime

CHARACTERS = 8192


def peak_bytes() -> int:
    """The most memory that this process has held so far."""
    status = Path("/proc/self/status")
    if status.exists():  # Linux's getrusage counts what the process was before it became this program, too
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def measure_context(block_size: int, form: str, device: str) -> Figure:
    """Memory that forward and backward of 8,192 characters take, cut into windows of block_size.

    To be run in a process of its own.
    """
    runtime = choose_runtime(device, "auto")
    config = ModelConfig(n_layer=2, n_head=2, n_embd=128, block_size=block_size, attention=form)
    model = GPT(config, 65).to(runtime.device)
    ids = torch.zeros(CHARACTERS // block_size, block_size, dtype=torch.long, device=runtime.device)
    _step(model, ids[:1, :32], runtime)  # what is loaded once, whatever the size
    before = _peak(runtime.device)
    _step(model, ids, runtime)
    return Figure(f"memory, context {block_size:,}, {form}", "MB", [(_peak(runtime.device) - before) / 1e6])


def _step(model: GPT, ids: torch.Tensor, runtime) -> None:
    with runtime.autocast():
        logits = model(ids)
    F.cross_entropy(logits.flatten(0, 1), ids.flatten()).backward()


def _peak(device: torch.device) -> int:
    return torch.cuda.max_memory_allocated() if device.type == "cuda" else peak_bytes()
