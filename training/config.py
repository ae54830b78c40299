"""The settings of a run: one frozen dataclass per section.

The comment of each setting is its description in configs/README.md, and its type has the rule for its values.
"""

from dataclasses import dataclass, field
from typing import Annotated, Literal, get_type_hints

from cli.marks import Mark, marks
from cli.rules import (
    BelowOne,
    Count,
    CountOrNone,
    Fraction,
    NotNegative,
    Positive,
    Size,
    Within,
    check_folder_name,
    check_rules,
)
from data.config import DataConfig
from model.config import ModelConfig


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """Section `optim` of a config. Raises ValueError, naming the setting and the rule, if a value is out of range."""

    # `muon`: Muon for the blocks' matrices, AdamW for the other parameters
    name: Annotated[Literal["adamw", "muon"], Mark.FIXED] = "muon"
    lr: Positive = 0.003  # peak learning rate of AdamW; `configs/shakespeare.yaml` has 0.012
    muon_lr: Positive = 0.02  # peak learning rate of Muon
    beta2: BelowOne = 0.95  # second beta of AdamW; the first is 0.9
    # weight decay of the blocks' matrices; with `muon`, it skips weights that their update moves away from 0
    weight_decay: NotNegative = 0.0
    # weight decay of the output layer (the language-model head), which makes predictions less overconfident
    lm_head_weight_decay: NotNegative = 0.0
    # steps over which the learning rate rises from 0 to its peak
    warmup_steps: CountOrNone = 20
    decay_fraction: Fraction = 0.5  # fraction of the run, at its end, over which the learning rate falls
    decay: Literal["linear", "cosine"] = "linear"  # how the learning rate falls
    final_lr_fraction: Fraction = 0.0  # final learning rate as a fraction of the peak
    # evaluate, sample and save with averaged weights; with 0.1, their mean age is 10 % of the run so far; 0 disables it
    average_fraction: BelowOne = 0.0
    # maximum norm of the gradient, without the rows of `model.ngrams`; 0 disables clipping
    grad_clip: NotNegative = 0.0

    def __post_init__(self):
        check_rules("optim", self)


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Section `train` of a config. Raises ValueError, naming the setting and the rule, if a value is out of range."""

    # name of the folder in `runs/`; null: name of the config file
    name: Annotated[str | None, Mark.WITHOUT_EFFECT] = None
    # a run, checkpoint or exported model whose weights the run starts with; `train.py --from` sets it
    ancestor: Annotated[str | None, Mark.RESOLVED, Mark.FIXED] = None
    max_steps: Count = 2000  # number of optimiser steps
    batch_size: Size = 8  # windows of `block_size` characters per batch
    accumulate: Size = 1  # gradient accumulation: batches per step
    # fractions of the run at which the context length doubles, up to `model.block_size`; `[0.4, 0.8]` trains on a
    # quarter of it, then half, then all, with as many characters in a step
    grow_context_at: tuple[float, ...] = ()
    seed: Annotated[int, Within(at_least=0, below=2**32)] = 0  # seed of weights, batches and dropout
    device: Annotated[str, Mark.RESOLVED] = "auto"  # `cpu`, `cuda`, `cuda:1`, `mps`; auto: CUDA, then MPS, then CPU
    # dtype of the arithmetic: `float32` or `bfloat16`; auto: bfloat16 if the device has it and, on a CPU, multiplies
    # faster with it; NVIDIA GPUs older than Ampere, such as Colab's T4, only emulate it, so auto is float32 there
    dtype: Annotated[Literal["auto", "float32", "bfloat16"], Mark.RESOLVED] = "auto"
    log_every_steps: Annotated[Count, Mark.WITHOUT_EFFECT] = 50  # steps between training lines
    eval_every_steps: Count = 250  # steps between evaluations, each of which also samples and saves a checkpoint
    # characters to evaluate on: whole windows, evenly spread and always the same; null: the whole validation split
    eval_characters: Annotated[Count | None, Mark.FIXED] = None
    # number of steps, most of them early, whose weights are kept to see how heads form
    # ([`experiments/README.md`](../experiments/README.md)): 3 or more; 0 disables this
    keep_checkpoints: Annotated[int, Within(at_least=0, at_most=1_000), Mark.WITHOUT_EFFECT] = 0
    # stop after this many evaluations without a better loss; 0 disables this
    patience: CountOrNone = 0
    # characters to sample at each evaluation
    sample_length: Annotated[int, Within(at_least=0, at_most=100_000), Mark.WITHOUT_EFFECT] = 300
    # where else to send the metrics: TensorBoard (event files in the run folder), trackio or Weights & Biases; `pip
    # install` the library of that name first
    logger: Annotated[Literal["none", "tensorboard", "trackio", "wandb"], Mark.WITHOUT_EFFECT] = "none"

    def __post_init__(self):
        check_rules("train", self)
        growth = self.grow_context_at
        if len(growth) > 20 or list(growth) != sorted(part for part in set(growth) if 0 < part < 1):
            raise ValueError(
                f"train.grow_context_at={list(growth)} must be rising fractions between 0 and 1, at most 20"
            )
        if self.keep_checkpoints in (1, 2):
            raise ValueError(f"train.keep_checkpoints={self.keep_checkpoints} must be 0, or at least 3")
        if self.name is not None:
            check_folder_name("train.name", self.name)


@dataclass(frozen=True, kw_only=True)
class Config:
    """All settings of a run. Raises ValueError if two sections contradict each other."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    @property
    def tokens_per_step(self) -> int:
        """Characters predicted in a step."""
        return self.train.accumulate * self.train.batch_size * self.model.block_size

    def __post_init__(self):
        n_times = len(self.train.grow_context_at)
        if self.model.block_size % 2**n_times:
            raise ValueError(
                f"train.grow_context_at doubles the context length {n_times} times; "
                f"model.block_size={self.model.block_size} must be a multiple of {2**n_times}"
            )


def settings_with(mark: Mark) -> set[str]:
    """Return the settings that have a mark, as section.name."""
    sections = get_type_hints(Config).items()
    return {f"{section}.{name}" for section, kind in sections for name, found in marks(kind).items() if mark in found}
