"""The settings of a run: one frozen dataclass per section."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from data.config import DataConfig
from model.config import ModelConfig


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """Section `optim` of a config. Raises ValueError, naming the setting and the rule, if a value is out of range."""

    name: Literal["adamw", "muon"] = "muon"  # muon: Muon for the blocks' matrices, AdamW for the rest
    lr: float = 3e-3  # AdamW's peak learning rate
    muon_lr: float = 0.02  # Muon's peak learning rate
    muon_momentum: float = 0.95
    beta1: float = 0.9
    beta2: float = 0.95
    weight_decay: float = 0.0  # of the blocks' matrices only; scaled by the learning rate
    lm_head_weight_decay: float = 0.0  # scaled by the learning rate; makes predictions less overconfident
    warmup_steps: int = 20  # linear, from 0
    decay_fraction: float = 0.5  # fraction of the run, at its end, in which the learning rate falls
    decay: Literal["linear", "cosine"] = "linear"
    final_lr_fraction: float = 0.0  # of the peak learning rate, at the end of the run
    average_fraction: float = 0.0  # evaluate and sample with averaged weights; their mean age as a fraction of the run
    grad_clip: float = 0.0  # maximum global gradient norm; 0 disables clipping

    def __post_init__(self):
        positive, below_1 = ("lr", "muon_lr"), ("muon_momentum", "beta1", "beta2", "average_fraction")
        _check(self, "optim", positive, lambda value: value > 0, "above 0")
        _check(self, "optim", below_1, lambda value: 0 <= value < 1, "at least 0 and below 1")
        _check(
            self,
            "optim",
            ("weight_decay", "lm_head_weight_decay", "warmup_steps", "grad_clip"),
            lambda value: value >= 0,
            "0 or above",
        )
        fractions = ("decay_fraction", "final_lr_fraction")
        _check(self, "optim", fractions, lambda value: 0 <= value <= 1, "at least 0 and at most 1")


# The largest values accepted, far above any that trains: larger ones are typing errors that would run for years.
LARGEST = {
    "max_steps": 10**9,
    "batch_size": 10**6,
    "accumulate": 10**4,
    "log_every_steps": 10**9,
    "eval_every_steps": 10**9,
    "checkpoint_every_steps": 10**9,
    "keep_checkpoints": 1_000,
    "processes": 1_000,
    "patience": 10**9,
    "sample_length": 100_000,
}


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Section `train` of a config. Raises ValueError, naming the setting and the rule, if a value is out of range."""

    name: str | None = None  # name of the folder in runs/; None: the config file's name
    ancestor: str | None = None  # a run, checkpoint or exported model whose weights a new run starts with
    max_steps: int = 2000
    batch_size: int = 8  # windows of block_size characters
    accumulate: int = 1  # gradient accumulation: batches per step
    grow_context_at: tuple[float, ...] = ()  # fractions of the run at which the context length doubles
    seed: int = 0
    device: str = "auto"  # auto, cpu, cuda, cuda:1, mps
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"  # of the arithmetic; parameters stay float32
    processes: int = 1  # that train together on this machine; torchrun may start another number
    parallel: Literal["ddp", "fsdp"] = "ddp"  # ddp: each process has the whole model; fsdp: a part of everything
    activation_checkpointing: bool = False  # compute activations twice instead of storing them
    deterministic: bool = False  # on a GPU: the same weights every time, at the cost of speed; a CPU needs no setting
    compile: bool = False  # torch.compile: starts slowly, then runs faster; pays off in runs of an hour
    log_every_steps: int = 50
    eval_every_steps: int = 250
    eval_characters: int | None = None  # evaluate on this many, evenly spread; None: the whole validation split
    checkpoint_every_steps: int = 250
    keep_checkpoints: int = 0  # weights kept from this many steps of the run, see `schedule.kept_steps`
    patience: int = 0  # evaluations without a better loss before the run stops; 0: no limit
    sample_length: int = 300  # characters sampled at each evaluation
    tensorboard: bool = False

    def __post_init__(self):
        for name, largest in LARGEST.items():
            if (value := getattr(self, name)) > largest:
                raise ValueError(f"train.{name}={value} must be at most {largest:,}")
        counts = ("max_steps", "batch_size", "accumulate", "log_every_steps", "eval_every_steps")
        _check(self, "train", (*counts, "checkpoint_every_steps", "processes"), lambda value: value >= 1, "at least 1")
        if len(self.grow_context_at) > 20:
            raise ValueError(f"train.grow_context_at has {len(self.grow_context_at)} entries; give at most 20")
        if list(self.grow_context_at) != sorted(part for part in set(self.grow_context_at) if 0 < part < 1):
            raise ValueError(
                f"train.grow_context_at={list(self.grow_context_at)} must be rising fractions between 0 and 1"
            )
        _check(self, "train", ("seed", "patience", "sample_length"), lambda value: value >= 0, "0 or above")
        _check(self, "train", ("keep_checkpoints",), lambda value: value == 0 or value >= 3, "0, or at least 3")
        _check(self, "train", ("seed",), lambda value: value < 2**32, "below 2^32")
        if self.eval_characters is not None:
            _check(self, "train", ("eval_characters",), lambda value: value >= 1, "at least 1, or null")
        if self.name is not None and (not self.name or set(self.name) & set('/\\:*?"<>|') or self.name[0] == "."):
            raise ValueError(f"train.name={self.name!r} must be a folder name without / or other special characters")


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
        if self.train.compile and self.train.parallel == "fsdp":
            raise ValueError("train.compile and train.parallel=fsdp exclude each other; leave one out")
        if self.train.parallel == "fsdp" and self.model.score == "gaussian" and self.model.score_width is None:
            raise ValueError("a learned model.score_width cannot be sharded (train.parallel=fsdp); set it to a number")
        shortest = 2 ** len(self.train.grow_context_at)
        if self.model.block_size % shortest:
            raise ValueError(
                f"train.grow_context_at doubles the context length {len(self.train.grow_context_at)} times; "
                f"model.block_size={self.model.block_size} must be a multiple of {shortest}"
            )


def _check(settings: Any, section: str, names: Iterable[str], is_valid: Callable[[Any], bool], rule: str) -> None:
    for name in names:
        if not is_valid(value := getattr(settings, name)):
            raise ValueError(f"{section}.{name}={value} must be {rule}")
