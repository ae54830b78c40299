"""The validation loss: each character of the split, or of a fixed part of it, exactly once and in a fixed order."""

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm import tqdm

from data.batches import Ids, evaluation_windows, to_device
from model.gpt import GPT
from training.runtime import Runtime

CHARACTERS_AT_ONCE = {"cpu": 8192, "mps": 8192, "cuda": 65536}  # a GPU needs more to be busy
LOGITS_AT_ONCE = 1 << 25  # limits the characters at once for large vocabularies


@dataclass(frozen=True)
class Evaluation:
    """A loss in nats per character over n_characters, each predicted from up to `context` earlier characters.

    n_available: the characters of the whole text.
    """

    loss: float
    n_characters: int
    n_available: int
    context: int

    @property
    def bits_per_character(self) -> float:
        return self.loss / math.log(2)

    @property
    def extent(self) -> str:
        """The context length and, if it is a part of the text only, the number of characters."""
        part = f"  {self.n_characters:,} of {self.n_available:,} characters"
        return f"context {self.context}{part if self.n_characters < self.n_available else ''}"

    def measured_on(self, passage: str) -> str:
        """Describe what was measured; losses are compared only if this is the same. passage: see `Corpus.passage`."""
        part = "all" if self.n_characters == self.n_available else f"{self.n_characters:,} evenly spread ones of the"
        return f"{part} {self.n_available:,} characters of {passage}, context length {self.context}"


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
    total: Tensor | float = 0.0
    n_scored, n_available = 0, len(ids) - 1
    bar = tqdm(total=n_available, desc=progress, unit_scale=True, disable=None if progress else True, leave=False)
    with bar, evaluation_mode(model):
        for targets, losses in scored_windows(model, ids, runtime, n_characters):
            check_stop()
            total = total + losses.sum()
            n_scored += targets.numel()
            bar.update(targets.numel())
    return Evaluation(float(total) / n_scored, n_scored, n_available, model.config.block_size)


def scored_windows(
    model: GPT, ids: Ids, runtime: Runtime, n_characters: int | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield targets (B, T) and losses (B, T), float64, of some of the windows of an evaluation."""
    size = model.config.block_size
    characters = min(CHARACTERS_AT_ONCE[runtime.device.type], LOGITS_AT_ONCE // model.lm_head.out_features)
    at_once = max(1, characters // size)
    for windows in evaluation_windows(ids, block_size=size, batch_size=at_once, n_characters=n_characters):
        inputs, targets = (to_device(x, runtime.device) for x in windows)  # (B, T) each
        with runtime.autocast():
            logits = model(inputs)
        losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view_as(targets)
        yield targets, losses.to("cpu" if runtime.device.type == "mps" else runtime.device).double()


@contextlib.contextmanager
def evaluation_mode(model: GPT) -> Iterator[None]:
    """Switch dropout off inside the context."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
