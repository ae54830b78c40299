"""Chapter 6: how well does the previous character alone predict the next? As well as a table of pairs can.

Answer to the question of chapter 5: itself, with the weight 1: the look-ahead mask hides the others.

A language model gives each character that can come next a probability p; all of them add up to 1. The loss is the mean
of -log p(next) over a text, where p(next) is the probability of the character that did come next, and log is the
inverse of exp. The loss is called cross-entropy. Its unit is the nat; divided by log 2 = 0.6931, it is in bits. Equal
probabilities for V characters have the loss log V.

To train a model is to change its parameters so that the loss falls. The gradient lists, for each parameter, the slope
of the loss: how fast it rises if this parameter does. Gradient descent goes against it, in many steps:

    parameter = parameter - lr x slope

lr is the learning rate. A model can learn its text by heart. So the validation loss is measured on the last tenth of
the text, which the model was not trained on.

The model of this chapter is a table with a row of scores for each character; the softmax of its row gives the
probabilities of the next. No position sees another: attention must beat it. For this model, the scores with the lowest
loss in training are known: the logarithms of the counts of pairs. (The table of counts below adds 1 to each count, so
that no pair has the probability 0, which costs a little in training.) Gradient descent does not use this formula. It
starts from zeros, and approaches the same probabilities, not the same scores: a number that is added to all scores of a
row changes no probability. Its rate, lr = 20, is large because slopes are small: that of a score is at most the share
of its row in the text.

The text is selmere, a short play that comes with the project. --corpus names another.

Question: is a higher rate better? Write LR = 150.

Next: python -m textbook 7 adds everything that the chapters before have built.
"""

import math
from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from data.config import DataConfig
from data.corpus import open_corpus

LR = 20


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


def descend(pairs: Tensor, lr: float) -> Iterator[tuple[Tensor, float]]:
    """Yield a table (V, V) of scores and its training loss, from zeros on, after each step of gradient descent.

    pairs (V, V) has the counts of character pairs in the training text.
    """
    table = torch.zeros_like(pairs, requires_grad=True)
    while True:
        loss = -(pairs * F.log_softmax(table, dim=-1)).sum() / pairs.sum()
        yield table.detach(), loss.item()
        (gradient,) = torch.autograd.grad(loss, table)
        with torch.no_grad():
            table -= lr * gradient


def show(corpus: str = "selmere") -> Iterator[str | tuple[str, Tensor]]:
    """Fit the table to the training part of a corpus; memory grows with the text."""
    p = torch.tensor([1.0, 0.5, 0.1, 0.01])
    yield "p(next), above its loss -log p(next)", torch.stack((p, -p.log()))
    text = open_corpus(DataConfig(corpus=corpus))
    splits = text.split(DataConfig().split, block_size=1)
    train_ids, val_ids, _ = (torch.from_numpy(ids[:].astype(np.int64)) for ids in splits)
    V = len(text.vocabulary)
    table = count_pairs(train_ids, V)
    yield f"{V} characters: {V} x {V} scores, from the first {len(train_ids):,} characters of {text.name}"
    for split, ids in (("training", train_ids), ("validation", val_ids)):
        loss = mean_loss(table, ids)
        yield f"{split} loss {loss:.4f} nats ({loss / math.log(2):.3f} bits) over {len(ids) - 1:,} characters"
    yield f"\nA table by gradient descent with lr = {LR}; at first, log {V} = {math.log(V):.4f}"
    steps = descend(count_pairs(train_ids, V, added=0.0).exp(), LR)
    for step, (table, loss) in zip(range(1001), steps, strict=False):
        if step in (0, 10, 100, 1000):
            yield f"step {step:5,}  training loss {loss:.4f}, validation loss {mean_loss(table, val_ids):.4f}"
