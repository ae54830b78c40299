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
from torch import Tensor, nn

from data.config import DataConfig
from data.corpus import open_corpus


class Bigram(nn.Module):
    """A table of scores, `Bigram(V)(ids (B, T)) -> logits (B, T, V)`: row i has those of what follows character i."""

    def __init__(self, vocab_size: int):
        super().__init__()
        self.table = nn.Embedding(vocab_size, vocab_size)
        nn.init.zeros_(self.table.weight)

    def forward(self, ids: Tensor) -> Tensor:
        return self.table(ids)  # (B, T, V)

    @torch.no_grad()
    def fit(self, ids: Tensor, *, added: float = 1.0) -> None:
        """Set the table to the logarithms of the counts of character pairs in ids (n,).

        With added=0, this table has the lowest cross-entropy over ids. `added` is added to every count, so that a pair
        that does not occur in ids has a probability above 0 (Laplace smoothing).
        """
        V = self.table.num_embeddings
        pairs = ids[:-1] * V + ids[1:]  # (n - 1,)
        counts = torch.bincount(pairs, minlength=V * V).view(V, V) + added
        self.table.weight.copy_(counts.log())

    @torch.inference_mode()
    def mean_loss(self, ids: Tensor) -> float:
        """Return the mean cross-entropy, in nats, of all ids (n,) except the first, each given the previous one."""
        log_probabilities = F.log_softmax(self.table.weight, dim=-1)  # (V, V)
        return -log_probabilities[ids[:-1], ids[1:]].mean().item()


def show(corpus: str = "selmere") -> Iterator[str]:
    """Fit the table to the training part of a corpus; memory grows with the text."""
    text = open_corpus(DataConfig(corpus=corpus))
    splits = text.split(DataConfig().split, block_size=1)
    train_ids, val_ids, _ = (torch.from_numpy(ids[:].astype(np.int64)) for ids in splits)
    model = Bigram(len(text.vocabulary)).double()
    model.fit(train_ids)
    size = f"{model.table.weight.numel():,} scores"
    yield f"A table of {size}, from counts in the first {len(train_ids):,} characters of {text.name}"
    for split, ids in (("training", train_ids), ("validation", val_ids)):
        loss = model.mean_loss(ids)
        yield f"{split} loss {loss:.4f} nats ({loss / math.log(2):.3f} bits) over {len(ids) - 1:,} characters"
