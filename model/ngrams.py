"""A memory of n-grams: it learns what follows the last few characters, so that attention need not.

For each n of `model.ngrams`, the last n characters choose a row of one table; a linear map of these rows is added to
the embedding. A hash function chooses the row, so the table has a fixed size, and different n-grams may share a row
(hash embeddings: Svenstrup et al., 2017). modded-nanogpt (since its record 62, pull request 201) and nanochat (pull
request 854) do so with tokens.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.config import ModelConfig
from model.positions import Places

WIDTH = 32  # of a row
MULTIPLIER = -7046029254386353131  # 2^64 / the golden ratio, odd, as a signed number (Knuth, 1973, section 6.4)
LOW_BITS = 34  # of a product; the bits above them depend on all characters
PRIOR = 2.4  # a row that the training text reads this many times has half of its weight, if a run reads the text once
COUNTED, BATCH = 1 << 24, 1 << 15  # characters to count at most, and at once, which fit into a CPU's cache
MOST = 10_000.0  # higher counts and priors change nothing, and float16 could not hold them


class NgramMemory(nn.Module):
    """Vectors (B, T, C) of the last n characters of the window, for each n of `model.ngrams`, summed.

    Positions before the window share one more symbol. Rows of rare n-grams memorise the text if a run reads it often.
    So a row that the counted text reads c times has the weight c / (c + p), where p is PRIOR times the number of passes
    through the text, and, in training, c - 1 in place of c: the text without the character to predict (leaving one
    out). Each row is also dropped with probability `model.ngram_dropout`.

    symbols: (V,), the number of each character in the hash: 1, 2, ... in the order of their ids. A model that is
    fine-tuned keeps those of its ancestor, and new characters get the next ones, so that n-grams keep their rows.
    counts: (rows,), the c of each row; before `count`, MOST. prior: (), the p. On a CPU, the gradient of the rows is
    sparse: a step changes only those that its windows read. CUDA graphs, NCCL and MPS need dense gradients.
    """

    symbols: Tensor
    counts: Tensor
    prior: Tensor
    powers: Tensor

    def __init__(self, config: ModelConfig, vocab_size: int):
        super().__init__()
        self.lengths, self.dropout = sorted(config.ngrams), config.ngram_dropout
        self.n_before = self.lengths[-1] - 1
        self.counted_share = 1.0  # of the characters of the text
        zeros = torch.zeros(config.ngram_rows, WIDTH)
        self.rows = nn.Embedding.from_pretrained(zeros, freeze=False, sparse=True)
        self.register_buffer("symbols", torch.arange(1, vocab_size + 1))
        self.register_buffer("counts", torch.full((config.ngram_rows,), MOST))
        self.register_buffer("prior", torch.tensor(PRIOR))
        # The hash of n symbols, the newest first, is the sum of s_i M^(n - i) over i = 0 to n - 1.
        powers = [[_power(n - i) if i < n else 0 for n in self.lengths] for i in range(max(self.lengths))]
        self.register_buffer("powers", torch.tensor(powers).flip(0), persistent=False)  # (longest, N), the oldest first
        self.proj = nn.Linear(len(self.lengths) * WIDTH, config.n_embd, bias=False)

    def forward(self, places: Places) -> Tensor:
        """Look up the n-grams that end at these positions."""
        symbols = F.pad(self.symbols, (1, 0))[places.characters(self.n_before)]  # 0: a position before the window
        index = self.index(symbols)  # (B, T, N)
        if index.device.type == "cpu":
            rows = self.rows(index)  # (B, T, N, WIDTH)
        else:
            rows = self.rows.weight.index_select(0, index.flatten()).view(*index.shape, -1)
        seen = self.counts.index_select(0, index.flatten()).view(*index.shape, 1)
        if self.training:
            seen = (seen - 1).clamp(min=0)
        share = seen / (seen + self.prior)  # (B, T, N, 1)
        share = F.dropout(share, self.dropout, self.training)
        return self.proj((rows * share).flatten(2))

    @torch.no_grad()
    def count(self, ids: np.ndarray) -> None:
        """Count the rows that the training text ids (N,) read.

        Of a text of more than COUNTED characters, evenly spread stretches are counted, and p is as much lower.
        """
        n_before, counts = self.n_before, torch.zeros(len(self.counts))
        all_symbols = self.symbols.cpu()
        n_stretches = -(-len(ids) // BATCH)
        n_counted = min(n_stretches, COUNTED // BATCH)
        self.counted_share = n_counted / n_stretches
        for start in (number * n_stretches // n_counted * BATCH for number in range(n_counted)):
            symbols = all_symbols[torch.from_numpy(ids[max(0, start - n_before) : start + BATCH].astype(np.int64))]
            index = self.index(F.pad(symbols, (max(0, n_before - start), 0))[None])
            counts += torch.bincount(index.flatten(), minlength=len(counts))
        self.counts.copy_(counts.clamp(max=MOST))

    def set_passes(self, n_passes: float) -> None:
        """Prepare for a run that reads its text this many times."""
        self.prior.fill_(min(PRIOR * n_passes * self.counted_share, MOST))

    def index(self, symbols: Tensor) -> Tensor:
        """Return the row (B, T, N) of each n-gram that ends at the last T of the symbols (B, n_before + T)."""
        windows = symbols.unfold(1, len(self.powers), 1).unsqueeze(-1)  # (B, T, longest, 1)
        hashed = (windows * self.powers.to(symbols.device)).sum(-2)  # (B, T, N), modulo 2^64; `count` works on the CPU
        return (hashed >> LOW_BITS) % self.rows.num_embeddings


def _power(exponent: int) -> int:
    """Return MULTIPLIER ** exponent, modulo 2^64, as a signed number."""
    return (pow(MULTIPLIER, exponent, 2**64) + 2**63) % 2**64 - 2**63
