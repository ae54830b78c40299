"""Chapter 8: how well does the previous character alone predict the next? As well as a table of pairs can.

Without attention, no position sees another one. The loss is the mean of -log p(next), in nats: a guess among V
characters has log V. The validation loss is that of text which was not used for fitting. Attention must beat it.

Next: python -m textbook 9 adds everything that the chapters before have built.
"""

import math
from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from data.config import DataConfig
from data.corpus import open_corpus


def count_pairs(ids: Tensor, vocab_size: int, *, added: float = 1.0) -> Tensor:
    """Return a table of scores (V, V), the logarithms of the counts of character pairs in ids (n,).

    Row i has the scores of what follows character i. With added=0, no table has a lower cross-entropy over ids. `added`
    is added to every count, so that a pair that does not occur in ids has a probability above 0 (Laplace smoothing).
    """
    pairs = ids[:-1] * vocab_size + ids[1:]  # (n - 1,)
    counts = torch.bincount(pairs, minlength=vocab_size**2).view(vocab_size, vocab_size)
    return (counts.double() + added).log()


def mean_loss(table: Tensor, ids: Tensor) -> float:
    """Return the mean cross-entropy, in nats, of all ids (n,) except the first, each given the previous one."""
    log_probabilities = F.log_softmax(table, dim=-1)  # (V, V)
    return -log_probabilities[ids[:-1], ids[1:]].mean().item()


def show(corpus: str = "selmere") -> Iterator[str]:
    """Fit the table to the training part of a corpus; memory grows with the text."""
    text = open_corpus(DataConfig(corpus=corpus))
    splits = text.split(DataConfig().split, block_size=1)
    train_ids, val_ids, _ = (torch.from_numpy(ids[:].astype(np.int64)) for ids in splits)
    table = count_pairs(train_ids, len(text.vocabulary))
    yield f"A table of {table.numel():,} scores, from counts in the first {len(train_ids):,} characters of {text.name}"
    for split, ids in (("training", train_ids), ("validation", val_ids)):
        loss = mean_loss(table, ids)
        yield f"{split} loss {loss:.4f} nats ({loss / math.log(2):.3f} bits) over {len(ids) - 1:,} characters"
