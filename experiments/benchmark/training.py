"""Speed, arithmetic and memory of training steps."""

import dataclasses

import torch

from data.config import DataConfig
from data.corpus import open_corpus
from experiments.benchmark.figures import Figure, time_repeats
from model.gpt import GPT
from training.runtime import choose_runtime, keep_freed_memory, peak_memory_bytes
from training.settings.config import Config
from training.state import TrainingState
from training.step import TrainingStep


def flops_per_character(model: GPT, block_size: int) -> int:
    """Return the operations per character of a forward and backward pass (PaLM: Chowdhery et al., 2022, appendix B).

    These are 6 for each weight of a matrix product and, including masked scores, 12 T for each channel of all heads.
    """
    matrices = sum(p.numel() for name, p in model.named_parameters() if p.ndim == 2 and "embedding" not in name)
    heads = sum(layer.n_head * layer.head_size for layer in model.config.layers)
    return 6 * matrices + 12 * block_size * heads


def measure_training(name: str, config: Config, peaks: dict[str, float], repeats: int) -> list[Figure]:
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
        Figure(f"training, {name}: arithmetic", "GFLOP/s", rates, limit=peaks.get(dtype), limit_is=limit_is),
        Figure(f"training, {name}: memory", "MB", [used / 1e6]),
    ]
