"""A memory of copies: what followed the last characters where they stood before, so that no head need find that.

A name that the window has once probably goes on in the same way the next time. Two layers of heads can learn to look
there (induction heads: Olsson et al., 2022), but need long training to do so; here a search finds the place.
"""

import torch
from torch import Tensor, nn

from model.embedding import TokenEmbedding

SHORTEST = 3  # fewer characters stand nearly everywhere in a window, and what follows them says little


class CopyMemory(nn.Module):
    """ids of the window -> vectors (B, T, C) of what may come next: a copy of what followed the last characters before.

    At each position, the longest match is the earlier place, the newest of several, before which most of the last
    characters are the same, up to `model.longest_copy` of them. The character after that place has a vector f, matches
    of n characters have a vector s_n, and their product f s_n, channel by channel, is added to the embedding; nothing
    is if n is below SHORTEST.
    """

    def __init__(self, longest: int, n_embd: int, vocab_size: int):
        super().__init__()
        self.longest, self.n_before = longest, longest - 1
        self.followers = TokenEmbedding(vocab_size, n_embd)  # f
        self.strengths = nn.Parameter(torch.ones(longest - SHORTEST + 1, n_embd))  # s_n, the shortest first

    def forward(self, recent: Tensor, window: Tensor, index: slice | Tensor) -> Tensor:
        """Return the vectors (B, T, C) at the last T of recent (B, n_before + T): ids plus 1, 0 before the window.

        window (B, n_before + S): the same for the whole window, in which the T are at positions `index` (see `Places`).
        What it holds at later positions does not matter.
        """
        positions = torch.arange(index.start, index.stop, device=recent.device) if isinstance(index, slice) else index
        lengths, following = self.find(recent, window, positions)
        numbers = torch.arange(SHORTEST, self.longest + 1, device=lengths.device)
        is_of_length = (lengths.unsqueeze(-1) == numbers).to(self.strengths.dtype)  # (B, T, n)
        return self.followers(following) * (is_of_length @ self.strengths)

    def find(self, recent: Tensor, window: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the length of the longest match at each of the positions (T,), 0: none, and the id after it."""
        T, S = recent.size(1) - self.n_before, window.size(1) - self.n_before
        same = (recent.unsqueeze(-1) == window.unsqueeze(-2)).to(torch.uint8)  # (B, n_before + T, n_before + S)
        lengths = same.new_zeros(len(same), T, S)
        for i in range(self.longest):  # the oldest characters first; a difference starts again at 0
            lengths = (lengths + 1) * same[:, i : i + T, i : i + S]
        places = torch.arange(S, dtype=torch.int32, device=window.device)
        is_earlier = places < positions.unsqueeze(-1)  # (T, S)
        best = (lengths.int() * is_earlier * S + places).amax(-1)  # (B, T): of the longest matches the newest
        following = window[:, -S:].gather(1, (best % S + 1).clamp(max=S - 1).long())
        return best // S, (following - 1).clamp(min=0)
