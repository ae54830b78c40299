"""A memory of n-grams: it learns what follows the last few characters, so that attention need not.

For each n of `model.ngrams`, the last n characters choose a row of a table, and its vector joins the embedding. A hash
function chooses the row, so the table has a fixed size, and different n-grams may share a row (hash embeddings:
Svenstrup et al., 2017). modded-nanogpt (since its record 62, pull request 201) and nanochat (pull request 854) do so
with tokens.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.cache import KVCache
from model.config import ModelConfig
from model.dropout import keep_mask
from model.positions import Places

MULTIPLIER = -7046029254386353131  # 2^64 / the golden ratio, odd, as a signed number (Knuth, 1973, section 6.4)
LOW_BITS = 34  # of a product; the bits above them depend on all characters


class NgramMemory(nn.Module):
    """ids (B, T) -> vectors (B, T, C) of the last n characters of the window, for each n of `model.ngrams`, summed.

    Positions before the window count as one more character. In training, each row is dropped with probability
    `model.ngram_dropout`, because the rows of rare n-grams would otherwise memorise the text. On a CPU, the gradient of
    the rows is sparse: a step changes only those that its windows read.
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.lengths, self.n_rows, self.dropout = config.ngrams, config.ngram_rows, config.ngram_dropout
        zeros = torch.zeros(len(self.lengths) * self.n_rows, config.ngram_width)
        self.rows = nn.Embedding.from_pretrained(zeros, freeze=False, sparse=True)
        self.proj = nn.Linear(len(self.lengths) * config.ngram_width, config.n_embd, bias=False)

    def forward(self, ids: Tensor, places: Places, cache: KVCache | None = None) -> Tensor:
        """Look up ids (B, T) at positions `places`, continuing the positions in the cache."""
        n_before, symbols = max(self.lengths) - 1, ids + 1  # 0: a position before the window
        # (B, n_before + T)
        symbols = F.pad(symbols, (n_before, 0)) if cache is None else cache.ids.update(symbols, places.index)
        index = self.index(symbols)  # (B, T, K)
        if index.device.type == "cuda":  # a CUDA graph cannot capture sparse gradients
            rows = self.rows.weight.index_select(0, index.flatten()).view(*index.shape, -1)  # (B, T, K, width)
        else:
            rows = self.rows(index)
        if self.training and self.dropout:
            rows = rows * keep_mask(rows[..., :1], self.dropout)
        return self.proj(rows.flatten(2))

    def index(self, symbols: Tensor) -> Tensor:
        """Return the row (B, T, K) of each n-gram that ends at the last T of the symbols (B, n_before + T)."""
        T = symbols.size(1) - max(self.lengths) + 1
        hashed, index = torch.zeros_like(symbols[:, :T]), list[Tensor]()
        for n in range(1, max(self.lengths) + 1):
            hashed = (hashed + symbols[:, symbols.size(1) - T - n + 1 :][:, :T]) * MULTIPLIER  # wraps, modulo 2^64
            if n in self.lengths:
                index.append((hashed >> LOW_BITS) % self.n_rows + len(index) * self.n_rows)
        return torch.stack(index, -1)
