"""The validation loss: each character of the split, or of a fixed part of it, exactly once and in a fixed order."""

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm import tqdm

from data.batches import Ids, evaluation_windows, to_device
from model.generate import window_start
from model.gpt import GPT
from training.calibration import Calibration
from training.runtime import Runtime

CHARACTERS_AT_ONCE = {"cpu": 8192, "mps": 8192, "cuda": 65536}  # a GPU needs more to be busy
LOGITS_AT_ONCE = 1 << 25  # limits the characters at once for large vocabularies


@dataclass(frozen=True)
class Evaluation:
    """A loss in nats per character over n_characters, each predicted from up to `context` earlier characters.

    n_available: the characters of the whole text. calibrated_loss: that at the temperature which makes it lowest, see
    `Calibration`; NaN if it was not measured.
    """

    loss: float
    n_characters: int
    n_available: int
    context: int
    calibrated_loss: float = math.nan
    temperature: float = math.nan

    @property
    def bits_per_character(self) -> float:
        return self.loss / math.log(2)

    @property
    def calibrated(self) -> str:
        return f"{self.calibrated_loss:.4f} at temperature {self.temperature:.2f}"

    @property
    def extent(self) -> str:
        """The context length and, if it is a part of the text only, the number of characters."""
        part = f"  {self.n_characters:,} of {self.n_available:,} characters"
        return f"context {self.context}{part if self.n_characters < self.n_available else ''}"

    def measured_on(self, passage: str) -> str:
        """Describe what was measured; losses are compared only if this is the same. passage: see `Corpus.passage`."""
        part = "all" if self.n_characters == self.n_available else f"{self.n_characters:,} evenly spread ones of the"
        return f"{part} {self.n_available:,} characters of {passage}, context length {self.context}"

    def record(self) -> dict[str, float]:
        """Return the values of a record in metrics.jsonl."""
        return {
            "val_loss": self.loss,
            "val_bits_per_char": self.bits_per_character,
            "val_calibrated_loss": self.calibrated_loss,
            "val_temperature": self.temperature,
            "val_characters": self.n_characters,
            "val_split_characters": self.n_available,
            "val_context": self.context,
        }


@torch.inference_mode()
def evaluate(
    model: GPT,
    ids: Ids,
    runtime: Runtime,
    *,
    n_characters: int | None = None,
    progress: str | None = None,
    check_stop: Callable[[], None] = lambda: None,
) -> Evaluation:
    """Return the mean cross-entropy of ids[1:], each predicted from the earlier ids of its window of block_size.

    n_characters: score only so many, see `evaluation_windows`. progress: the title of a progress bar; None: no bar.
    check_stop: called between windows; it may raise an exception to end the evaluation.
    """
    block_size = model.config.block_size
    total: Tensor | float = 0.0
    calibration = Calibration()
    n_scored = 0
    n_available = len(ids) - 1
    batch_size = windows_at_once(model, runtime)
    windows = evaluation_windows(ids, block_size=block_size, batch_size=batch_size, n_characters=n_characters)
    bar = tqdm(total=n_available, desc=progress, unit_scale=True, disable=None if progress else True, leave=False)
    with bar, evaluation_mode(model):
        for inputs, targets in windows:
            check_stop()
            inputs, targets = to_device(inputs, runtime.device), to_device(targets, runtime.device)
            with runtime.autocast():
                logits = model(inputs)  # (B, T, V)
            losses = losses_of(logits, targets, runtime)
            total = total + losses.sum()
            calibration.add(logits, targets)
            n_scored += targets.numel()
            bar.update(targets.numel())
    return Evaluation(float(total) / n_scored, n_scored, n_available, block_size, *calibration.best())


def windows_at_once(model: GPT, runtime: Runtime) -> int:
    """Return how many windows of block_size an evaluation computes at once."""
    characters = min(CHARACTERS_AT_ONCE[runtime.device.type], LOGITS_AT_ONCE // model.lm_head.out_features)
    return max(1, characters // model.config.block_size)


@torch.inference_mode()
def character_losses(model: GPT, ids: np.ndarray, runtime: Runtime, *, as_generated: bool = False) -> Tensor:
    """Return the loss (len(ids) - 1,) of each of ids[1:], float64, in the windows of `evaluate` or `generate`."""
    size, losses = model.config.block_size, [torch.zeros(0, dtype=torch.float64)]
    with evaluation_mode(model):
        for start, seen in groupby(
            range(1, len(ids)), lambda n: window_start(n, size) if as_generated else (n - 1) // size * size
        ):
            numbers = list(seen)
            window = to_device(torch.from_numpy(ids[start : numbers[-1] + 1].astype(np.int64)), runtime.device)
            with runtime.autocast():
                logits = model(window[None, :-1])
            losses.append(losses_of(logits, window[None, 1:], runtime)[-len(numbers) :].cpu())
    return torch.cat(losses)


def losses_of(logits: Tensor, targets: Tensor, runtime: Runtime) -> Tensor:
    """Return the cross-entropy (B T,) of targets (B, T) for logits (B, T, V), float64."""
    losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    return losses.to("cpu" if runtime.device.type == "mps" else runtime.device).double()  # MPS has no float64


@contextlib.contextmanager
def evaluation_mode(model: GPT) -> Iterator[None]:
    """Switch dropout off inside the context."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
