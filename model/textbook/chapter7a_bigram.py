"""Chapter 7: how well does the previous character alone predict the next? As well as a table of pairs can.

This is the model without attention: no position sees another one. `python -m experiments.textbook bigram` measures it.

Next: `chapter7b_gpt.py` adds everything that the chapters before have built.
"""

import torch
from torch import Tensor, nn


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
        pairs = ids[:-1] * V + ids[1:]
        counts = torch.bincount(pairs, minlength=V * V).view(V, V) + added
        self.table.weight.copy_(counts.log())
