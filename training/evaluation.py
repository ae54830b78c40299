"""The validation loss: each character of the split exactly once, in fixed windows and a fixed order."""

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from tqdm import tqdm

from data.batches import evaluation_windows
from model.gpt import GPT
from training.runtime import Runtime

CHARACTERS_AT_ONCE = 8192
LOGITS_AT_ONCE = 1 << 25  # limits the characters at once for large vocabularies


@dataclass(frozen=True)
class Evaluation:
    """A loss in nats per character over n_characters, each predicted from up to `context` earlier characters."""

    loss: float
    n_characters: int
    context: int

    @property
    def bits_per_character(self) -> float:
        return self.loss / math.log(2)

    def record(self) -> dict[str, float]:
        """Return the values of a record in metrics.jsonl."""
        return {
            "val_loss": self.loss,
            "val_bits_per_char": self.bits_per_character,
            "val_characters": self.n_characters,
            "val_context": self.context,
        }


@torch.inference_mode()
def evaluate(
    model: GPT, ids: np.ndarray, block_size: int, runtime: Runtime, *, progress: str | None = None
) -> Evaluation:
    """Return the mean cross-entropy of ids[1:], each predicted from the earlier ids of its window of block_size.

    progress: the title of a progress bar; None: no bar.
    """
    was_training = model.training
    model.eval()
    total = torch.zeros((), dtype=torch.float64, device=runtime.sum_device)
    n_characters = 0
    at_once = min(CHARACTERS_AT_ONCE, LOGITS_AT_ONCE // model.lm_head.out_features)
    windows = evaluation_windows(ids, block_size=block_size, batch_size=max(1, at_once // block_size))
    with tqdm(
        total=len(ids) - 1, desc=progress, unit_scale=True, disable=None if progress else True, leave=False
    ) as bar:
        for inputs, targets in windows:
            inputs, targets = runtime.to_device(inputs), runtime.to_device(targets)
            with runtime.autocast():
                logits = model(inputs)  # (B, T, V)
            losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
            total += losses.to(runtime.sum_device).double().sum()
            n_characters += targets.numel()
            bar.update(targets.numel())
    model.train(was_training)
    return Evaluation(total.item() / n_characters, n_characters, block_size)
