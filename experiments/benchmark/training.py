"""Speed, arithmetic and memory of training steps, and their memory by context length."""

import dataclasses
from collections.abc import Mapping
from typing import Literal

import torch
import torch.nn.functional as F

from data.config import DataConfig
from data.corpus import open_corpus
from experiments.benchmark.figures import Figure, time_repeats
from model.config import ModelConfig
from model.gpt import GPT
from training.runtime import Runtime, choose_runtime, keep_freed_memory, peak_memory_bytes
from training.settings.config import Config
from training.state import TrainingState
from training.step import TrainingStep

CHARACTERS = 8192


def flops_per_character(model: GPT, block_size: int) -> int:
    """Return the operations per character of a forward and backward pass (PaLM: Chowdhery et al., 2022, appendix B).

    These are 6 for each weight of a matrix product and, including masked scores, 12 T for each channel of all heads.
    """
    matrices = sum(p.numel() for name, p in model.named_parameters() if p.ndim == 2 and "embedding" not in name)
    heads = sum(layer.n_head * layer.head_size for layer in model.config.layers)
    return 6 * matrices + 12 * block_size * heads


def measure_training(name: str, config: Config, peaks: Mapping[str, float], repeats: int) -> list[Figure]:
    """Measure characters per second, GFLOP/s and memory of complete training steps on the bundled play.

    All steps use the full context length, even if the config grows it. peaks: GFLOP/s of matrix products by dtype. Call
    this in a new process.
    """
    keep_freed_memory()
    before = peak_memory_bytes(torch.device("cpu"))
    train = dataclasses.replace(config.train, grow_context_at=())
    config = dataclasses.replace(config, data=DataConfig(corpus="selmere"), train=train)
    corpus, runtime = open_corpus(config.data), choose_runtime(config.train.device, config.train.dtype)
    state = TrainingState(config, corpus, runtime)
    block_size, n_tokens = config.model.block_size, config.tokens_per_step
    step = TrainingStep(state, corpus.split(config.data.split, block_size).train)
    seconds = time_repeats(step.run, repeats, runtime.device, warm_up=max(1, repeats // 4))
    dtype = str(runtime.dtype).removeprefix("torch.")
    gflop = flops_per_character(state.model, block_size) * n_tokens / 1e9
    rates, limit_is = [gflop / s for s in seconds], f"the matrix product in {dtype}"
    used = peak_memory_bytes(runtime.device) - (0 if runtime.device.type == "cuda" else before)
    return [
        Figure(f"training, {name}", "characters/s", [n_tokens / s for s in seconds]),
        Figure(f"training, {name}: arithmetic", "GFLOP/s", rates, limit=peaks[dtype], limit_is=limit_is),
        Figure(f"training, {name}: memory", "MB", [used / 1e6]),
    ]


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
