"""What depends on the step of a run: the learning rate and the context length."""

import math

from training.config import Config, OptimConfig


def lr_factor(optim: OptimConfig, step: int, max_steps: int) -> float:
    """Return the learning rate of step 0, 1, ..., max_steps - 1 as a fraction of its peak."""
    warmup = min(1.0, (step + 1) / optim.warmup_steps) if optim.warmup_steps else 1.0
    decay_steps = optim.decay_fraction * max_steps
    remaining = min(1.0, (max_steps - step) / decay_steps) if decay_steps else 1.0
    if optim.decay == "cosine":
        remaining = 0.5 - 0.5 * math.cos(math.pi * remaining)
    return warmup * (optim.final_lr_fraction + (1 - optim.final_lr_fraction) * remaining)


def context_length(config: Config, step: int) -> int:
    """Return the context length of step 0, 1, ...; it grows to model.block_size at train.grow_context_at.

    Short windows cost less and teach local patterns sooner (sequence length curriculum: Li et al., 2022).
    """
    doublings_left = sum(step < part * config.train.max_steps for part in config.train.grow_context_at)
    return config.model.block_size >> doublings_left
