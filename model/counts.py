"""What followed the last characters in the training text: counts, which join the network.

A network forgets rare strings; counts do not. They answer with interpolated n-grams (Witten and Bell, 1991) of up to
LONGEST characters before the next one. The logits of the network and the logarithms of these probabilities are added,
each with a weight (log-linear interpolation: Klakow, 1998). They join only outside training: counts know the training
text better than any other text, so the network would learn to rely on them.
"""

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

LONGEST = 10  # characters before the next one
NETWORK_WEIGHT, COUNTS_WEIGHT = 0.65, 0.2  # weights of the logits and of the logarithms; chosen on held-out text
BACKOFF = 4.0  # how much a longer n-gram leaves to the shorter one, for each character that was seen to follow it
COUNTS_AT_ONCE = 1 << 22  # limits the memory for large vocabularies
NOWHERE = torch.iinfo(torch.int64).max


class Counts(nn.Module):
    """ids of the last characters -> logarithms of the probabilities of the next one.

    After k characters that the text has c times, and that d different characters follow, one of them r times, this one
    has the probability p_k = (r + BACKOFF d p_(k - 1)) / (c + BACKOFF d), or p_(k - 1) if c = 0; p_0 is its share of
    the text.

    text: (N,), the ids of the counted text plus 1, and 0 after its end. The other buffers are an index of it:
    - keys (N,), sorted: the last characters at each place as one number, whose first digit is the newest character, so
      that places with equal last characters are neighbours; units are the values of its digits.
    - following (N, padded to whole blocks): the id of the character after each.
    - cumulative (blocks, V): how often each character follows before each block.
    - shares (V,): p_0.
    """

    text: Tensor
    units: Tensor
    keys: Tensor
    following: Tensor
    cumulative: Tensor
    shares: Tensor

    def __init__(self, n_characters: int, vocab_size: int):
        super().__init__()
        self.vocab_size, self.block = vocab_size, max(16, vocab_size // 4)
        self.n_before = len(digits(vocab_size)) - 1
        n_blocks = n_characters // self.block + 1
        self.register_buffer("text", torch.zeros(n_characters, dtype=torch.uint8 if vocab_size < 256 else torch.int32))
        index = {
            "units": torch.tensor(digits(vocab_size)),
            "keys": torch.full((n_characters,), NOWHERE),
            "following": torch.zeros(n_blocks * self.block, dtype=torch.int32),
            "cumulative": torch.zeros(n_blocks, vocab_size, dtype=torch.int32),
            "shares": torch.full((vocab_size,), 1 / vocab_size),
        }
        for name, x in index.items():
            self.register_buffer(name, x, persistent=False)

    @torch.no_grad()
    def count(self, ids: Any) -> None:
        """Count the first ids, as many as `text` holds; a slice of the ids is a NumPy array."""
        beginning = torch.from_numpy(ids[: len(self.text)].astype(np.int32) + 1)
        self.text.copy_(F.pad(beginning, (0, len(self.text) - len(beginning))))
        self._index()

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        self._index()

    @torch.no_grad()
    def _index(self) -> None:
        """Compute the index of the text, on the CPU."""
        text, V, n_before = self.text.cpu().long(), self.vocab_size, self.n_before
        following = F.pad(text[1:], (0, 1))
        keys, padded = torch.zeros_like(text), F.pad(text, (n_before, 0))
        for i in range(n_before, -1, -1):  # the newest first
            keys = keys * (V + 1) + padded[i : i + len(text)]
        keys[:n_before] = NOWHERE  # fewer characters than a key has
        keys[following == 0] = NOWHERE
        keys, order = keys.sort()
        following = following[order].clamp(min=1) - 1
        cells = torch.arange(len(text)) // self.block * V + following
        found = torch.bincount(cells[keys < NOWHERE], minlength=self.cumulative.numel()).view_as(self.cumulative)
        self.keys.copy_(keys)
        self.following[: len(text)].copy_(following)
        self.cumulative.copy_(found.cumsum(0) - found)
        total = found.sum(0) + 1
        self.shares.copy_(total / total.sum())

    def _keys(self, symbols: Tensor) -> Tensor:
        """Return the first 1, 2, ... digits of the keys (..., T, n) at the last T of symbols (..., n - 1 + T)."""
        newest_first = symbols.unfold(-1, self.n_before + 1, 1).flip(-1)
        return (newest_first * self.units).cumsum(-1)

    def forward(self, recent: Tensor) -> Tensor:
        """Return log p (B, T, V) after the last T of recent (B, n_before + T): ids plus 1, 0 before the window."""
        keys = self._keys(recent)  # (B, T, n)
        at_once = max(1, COUNTS_AT_ONCE // (keys[0].numel() * self.vocab_size))
        return torch.cat([self._log_probabilities(portion) for portion in keys.split(at_once)])

    def _log_probabilities(self, keys: Tensor) -> Tensor:
        """Return log p (B, T, V) after the last characters, given as keys (B, T, n)."""
        places = torch.searchsorted(self.keys, torch.stack((keys, keys + self.units), -1))  # (B, T, n, 2): first, end
        r = self._followers(places)  # (B, T, n, V)
        c, d = r.sum(-1), r.clamp(max=1).sum(-1)
        share = c / (c + BACKOFF * d).clamp(min=1)  # what p_k takes from r / c; the rest comes from p_(k - 1)
        # p_k = share r / c + (1 - share) p_(k - 1), unrolled: p_k enters the last one times all (1 - share) above it
        left = F.pad((1 - share).flip(-1).cumprod(-1), (1, 0), value=1.0).flip(-1)  # (B, T, 1 + n)
        weights = left[..., 1:] * share / c.clamp(min=1)
        # Not a product of matrices, which autocast would compute in bfloat16.
        return ((weights.unsqueeze(-1) * r).sum(-2) + left[..., :1] * self.shares).log()

    def _followers(self, places: Tensor) -> Tensor:
        """Return how often each character follows (..., V) at places (..., 2) of the index: the first, and the end."""
        block, rest = places // self.block, places % self.block
        whole = self.cumulative.index_select(0, block.flatten()).view(*block.shape, -1)  # (..., 2, V), before the block
        inside = torch.arange(self.block, device=places.device)
        following = self.following[block.unsqueeze(-1) * self.block + inside].long()  # (..., 2, block)
        is_before = (inside < rest.unsqueeze(-1)).to(self.shares.dtype)
        signed = torch.stack((-is_before[..., 0, :], is_before[..., 1, :]), -2)
        counts = (whole[..., 1, :] - whole[..., 0, :]).to(signed.dtype)
        return counts.scatter_add_(-1, following.flatten(-2), signed.flatten(-2))


def digits(vocab_size: int) -> list[int]:
    """Return the values of a key's digits: LONGEST up to 72 different characters, with more only what fits 62 bits."""
    n = min(LONGEST, int(62 / math.log2(vocab_size + 1)))
    return [(vocab_size + 1) ** i for i in range(n)][::-1]
