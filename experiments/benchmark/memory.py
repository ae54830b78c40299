"""Peak memory of a training step by context length."""

from typing import Literal

import torch
import torch.nn.functional as F

from experiments.benchmark.figures import Figure
from model.config import ModelConfig
from model.gpt import GPT
from training.runtime import Runtime, choose_runtime, peak_memory_bytes

CHARACTERS = 8192


def measure_context(block_size: int, form: Literal["auto", "explicit", "fused"], device: str) -> Figure:
    """Measure the memory of a forward and backward pass over 8,192 characters in windows of block_size.

    form: see `model.attention.attend`. Call this in a new process.
    """
    runtime = choose_runtime(device, "auto")
    config = ModelConfig(n_layer=2, n_head=2, n_embd=128, block_size=block_size, attention=form)
    model = GPT(config, 65).to(runtime.device)
    ids = torch.zeros(CHARACTERS // block_size, block_size, dtype=torch.long, device=runtime.device)
    _step(model, ids[:1, :32], runtime)  # one-time allocations, which do not depend on the size
    before = peak_memory_bytes(runtime.device)
    _step(model, ids, runtime)
    used = peak_memory_bytes(runtime.device) - before
    return Figure(f"memory, context length {block_size:,}, {form}", "MB", [used / 1e6])


def _step(model: GPT, ids: torch.Tensor, runtime: Runtime) -> None:
    with runtime.autocast():
        logits = model(ids)
    F.cross_entropy(logits.flatten(0, 1), ids.flatten()).backward()
