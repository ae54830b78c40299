"""The settings of a run: one frozen section for each part of the program."""

import math
from dataclasses import dataclass, field
from typing import Literal

from data.config import DataConfig
from model.config import ModelConfig


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """Raises ValueError, with a sentence that names the setting, where a value cannot work."""

    name: Literal["adamw", "muon"] = "muon"  # muon: Muon for the matrices of the blocks, AdamW for the rest
    lr: float = 3e-3  # AdamW's highest learning rate
    muon_lr: float = 0.02  # Muon's highest learning rate
    muon_momentum: float = 0.95
    beta1: float = 0.9
    beta2: float = 0.95
    weight_decay: float = 0.0  # of matrices; scaled by the learning rate; never of norms, biases and embeddings
    warmup_steps: int = 20  # from 0, linearly
    decay_fraction: float = 0.5  # the last part of the run, over which the learning rate falls
    decay: Literal["linear", "cosine"] = "linear"
    final_lr_fraction: float = 0.0  # of the highest learning rate, where the run ends
    grad_clip: float = 0.0  # largest norm of all gradients together; 0: not clipped

    def __post_init__(self):
        for name in ("lr", "muon_lr"):
            if (value := getattr(self, name)) <= 0:
                raise ValueError(f"optim.{name}={value} must be above 0")
        for name in ("muon_momentum", "beta1", "beta2"):
            if not 0 <= (value := getattr(self, name)) < 1:
                raise ValueError(f"optim.{name}={value} must be at least 0 and below 1")
        for name in ("weight_decay", "warmup_steps", "grad_clip"):
            if (value := getattr(self, name)) < 0:
                raise ValueError(f"optim.{name}={value} must be 0 or above")
        for name in ("decay_fraction", "final_lr_fraction"):
            if not 0 <= (value := getattr(self, name)) <= 1:
                raise ValueError(f"optim.{name}={value} must be at least 0 and at most 1")

    def lr_factor(self, step: int, max_steps: int) -> float:
        """The learning rate of step 0, 1, ..., max_steps - 1 as a share of its highest."""
        warmup = min(1.0, (step + 1) / self.warmup_steps) if self.warmup_steps else 1.0
        decay_steps = self.decay_fraction * max_steps
        remaining = min(1.0, (max_steps - step) / decay_steps) if decay_steps else 1.0
        if self.decay == "cosine":
            remaining = 0.5 - 0.5 * math.cos(math.pi * remaining)
        return warmup * (self.final_lr_fraction + (1 - self.final_lr_fraction) * remaining)


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Raises ValueError, with a sentence that names the setting, where a value cannot work."""

    name: str | None = None  # of the folder in runs/; None: the name of the config file
    max_steps: int = 2000
    batch_size: int = 8  # windows of block_size characters
    accumulate: int = 1  # batches whose gradients make one step
    grow_context_at: tuple[float, ...] = ()  # parts of the run at which the context doubles, up to model.block_size
    seed: int = 0
    device: str = "auto"  # auto, cpu, cuda, cuda:1, mps
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"  # of the arithmetic; parameters are float32
    compile: bool = False  # by torch.compile: slow to start, then faster; repays itself in runs of an hour
    log_every_steps: int = 50
    eval_every_steps: int = 250
    checkpoint_every_steps: int = 250
    patience: int = 0  # evaluations without a better loss after which the run ends; 0: never
    sample_length: int = 300  # characters written to samples.txt at each evaluation
    tensorboard: bool = False

    def __post_init__(self):
        counts = ("max_steps", "batch_size", "accumulate", "log_every_steps", "eval_every_steps")
        for name in (*counts, "checkpoint_every_steps"):
            if (value := getattr(self, name)) < 1:
                raise ValueError(f"train.{name}={value} must be at least 1")
        if list(self.grow_context_at) != sorted(part for part in set(self.grow_context_at) if 0 < part < 1):
            raise ValueError(
                f"train.grow_context_at={list(self.grow_context_at)} must be rising parts of the run between 0 and 1"
            )
        for name in ("seed", "patience", "sample_length"):
            if (value := getattr(self, name)) < 0:
                raise ValueError(f"train.{name}={value} must be 0 or above")
        if self.seed >= 2**32:
            raise ValueError(f"train.seed={self.seed} must be below 2^32")
        if self.name is not None and (not self.name or set(self.name) & set('/\\:*?"<>|') or self.name[0] == "."):
            raise ValueError(f"train.name={self.name!r} must be a name for a folder, without / or other special signs")


@dataclass(frozen=True, kw_only=True)
class Config:
    """Everything that a run follows from. Raises ValueError where two sections do not fit together."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self):
        shortest = 2 ** len(self.train.grow_context_at)
        if self.model.block_size % shortest:
            raise ValueError(
                f"train.grow_context_at doubles the context {len(self.train.grow_context_at)} times; "
                f"model.block_size={self.model.block_size} must be a multiple of {shortest}"
            )

    def context(self, step: int) -> int:
        """Characters in a training window of step 0, 1, ...: shorter than model.block_size early in a run that grows.

        Short windows teach what lies near sooner, and cost less (curriculum of lengths: Li et al., 2022).
        """
        doublings_left = sum(step < part * self.train.max_steps for part in self.train.grow_context_at)
        return self.model.block_size >> doublings_left
