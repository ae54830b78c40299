"""The importance of heads: the validation loss without them."""

from collections.abc import Collection

import numpy as np

from experiments.heads.internals import HeadIndex, silenced
from model.gpt import GPT
from training.evaluation import evaluate
from training.runtime import Runtime


def loss_without(model: GPT, heads: Collection[HeadIndex], ids: np.ndarray, runtime: Runtime) -> float:
    """Return the validation loss over ids with these heads silenced, in nats per character; see `evaluate`."""
    with silenced(model, heads):
        return evaluate(model, ids, model.config.block_size, runtime).loss


def rank(losses: dict[HeadIndex, float]) -> list[HeadIndex]:
    """Sort heads by the loss without them: the least important head comes first."""
    return sorted(losses, key=lambda head: (losses[head], head))
