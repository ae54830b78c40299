"""The settings of a run: one frozen dataclass per section.

The comment of each setting is its description in configs/README.md, and its type has the rule for its values.
"""

from dataclasses import dataclass, field
from typing import Annotated, Literal, get_type_hints

from cli.rules import (
    BelowOne,
    Count,
    CountOrNone,
    Fraction,
    Mark,
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

    # Muon trains the blocks' matrices, and AdamW the rest
    name: Annotated[Literal["adamw", "muon"], Mark.FIXED] = "muon"
    lr: Positive = 0.003  # peak learning rate of AdamW
    muon_lr: Positive = 0.02  # peak learning rate of Muon
    beta2: BelowOne = 0.95  # second beta of AdamW; the first is 0.9
    # weight decay of the blocks' matrices; with `muon`, cautious
    weight_decay: NotNegative = 0.0
    lm_head_weight_decay: NotNegative = 0.0  # weight decay of the output layer
    warmup_steps: CountOrNone = 20  # steps in which the rates rise to their peak
    decay_fraction: Fraction = 0.5  # part of the run in which the rates fall, at its end
    decay: Literal["linear", "cosine"] = "linear"  # how the rates fall
    final_lr_fraction: Fraction = 0.0  # final rate as a fraction of the peak
    # evaluate, sample and save averaged weights; 0.1: of mean age 10 % of the run so far
    average_fraction: BelowOne = 0.0
    # maximum norm of the gradient (without rows of n-grams); 0: none
    grad_clip: NotNegative = 0.0

    def __post_init__(self):
        check_rules("optim", self)


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Section `train` of a config. Raises ValueError, naming the setting and the rule, if a value is out of range."""

    # folder in `runs/`; null: name of the config
    name: Annotated[str | None, Mark.WITHOUT_EFFECT] = None
    # a model whose weights the run starts with; `train.py --from` sets it
    ancestor: Annotated[str | None, Mark.RESOLVED, Mark.FIXED] = None
    max_steps: Count = 2000  # steps of the optimiser
    batch_size: Size = 8  # windows of `block_size` characters per batch
    accumulate: Size = 1  # batches per step (gradient accumulation)
    # when the context length doubles; `[0.4, 0.8]`: after 40 % and 80 % of the run, from a quarter of `block_size`
    grow_context_at: tuple[float, ...] = ()
    seed: Annotated[int, Within(at_least=0, below=2**32)] = 0  # seed of weights, batches and dropout
    device: Annotated[str, Mark.RESOLVED] = "auto"  # `cpu`, `cuda`, `cuda:1`, `mps`; auto: CUDA, then MPS, then CPU
    # precision; auto: bfloat16 where it is faster
    dtype: Annotated[Literal["auto", "float32", "bfloat16"], Mark.RESOLVED] = "auto"
    log_every_steps: Annotated[Count, Mark.WITHOUT_EFFECT] = 50  # steps between training lines
    eval_every_steps: Count = 250  # steps between evaluations, samples and checkpoints
    # characters to evaluate on, evenly spread; null: the whole split
    eval_characters: Annotated[Count | None, Mark.FIXED] = None
    # number of steps whose [weights are kept](../experiments/README.md#heads): 0, or at least 3
    keep_checkpoints: Annotated[int, Within(at_least=0, at_most=1_000), Mark.WITHOUT_EFFECT] = 0
    patience: CountOrNone = 0  # stop after this many evaluations without a better loss; 0: never
    # characters of a sample
    sample_length: Annotated[int, Within(at_least=0, at_most=100_000), Mark.WITHOUT_EFFECT] = 300
    # where else to send metrics; `pip install` the library
    logger: Annotated[Literal["none", "tensorboard", "trackio", "wandb"], Mark.WITHOUT_EFFECT] = "none"

    def __post_init__(self):
        check_rules("train", self)
        growth = self.grow_context_at
        if list(growth) != sorted(part for part in set(growth) if 0 < part < 1):
            raise ValueError(f"train.grow_context_at={list(growth)} must be rising fractions between 0 and 1")
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
    return {
        f"{section}.{name}"
        for section, kind in get_type_hints(Config).items()
        for name, hint in get_type_hints(kind, include_extras=True).items()
        if mark in getattr(hint, "__metadata__", ())
    }
