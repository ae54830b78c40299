"""A memory of copies: it finds an earlier copy of the last characters in the window, so that no head needs to.

A name that the window has once probably goes on in the same way the next time. Two layers of heads can learn to look
there (induction heads: Olsson et al., 2022), but need long training to do so; here a search finds the place.
"""

import torch
from torch import Tensor, nn

from model.config import SHORTEST_COPY, ModelConfig
from model.embedding import TokenEmbedding
from model.positions import Places


class CopyMemory(nn.Module):
    """Vectors (B, T, C) of the characters that followed earlier copies of the last ones.

    The copy of a position is the earlier place whose last characters equal those of the position for the longest
    stretch, of up to `longest` characters; of several, the newest. Let n be its length, f the vector of the character
    after that place, and s_n the vector of copies of length n. Their product f s_n, channel by channel, is added to the
    embedding. If n is below SHORTEST_COPY, nothing is added.
    """

    def __init__(self, config: ModelConfig, vocab_size: int):
        super().__init__()
        self.longest, self.n_before = config.longest_copy, config.longest_copy - 1
        self.followers = TokenEmbedding(vocab_size, config.n_embd)  # f
        # s_n, the shortest first
        self.strengths = nn.Parameter(torch.ones(self.longest - SHORTEST_COPY + 1, config.n_embd))

    def forward(self, places: Places) -> Tensor:
        """Search the window for copies of the characters that end at these positions."""
        recent, index = places.characters(self.n_before), places.index
        window = places.characters(self.n_before + index.start)  # all of it
        lengths, following = self.find(recent, window, torch.arange(index.start, index.stop, device=recent.device))
        numbers = torch.arange(SHORTEST_COPY, self.longest + 1, device=lengths.device)
        is_of_length = (lengths.unsqueeze(-1) == numbers).to(self.strengths.dtype)  # (B, T, n)
        with torch.autocast(lengths.device.type, enabled=False):
            return self.followers(following) * (is_of_length @ self.strengths)

    def find(self, recent: Tensor, window: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the length of the longest copy at each of the positions (T,), 0: none, and the id after it: (B, T).

        recent (B, n_before + T), window (B, n_before + S): see `Places`.
        """
        T, S = recent.size(1) - self.n_before, window.size(1) - self.n_before
        same = (recent.unsqueeze(-1) == window.unsqueeze(-2)).to(torch.uint8)  # (B, n_before + T, n_before + S)
        lengths = same.new_zeros(len(same), T, S)
        for i in range(self.longest):  # the oldest characters first; a difference resets the length to 0
            also = same[:, i : i + T, i : i + S]
            lengths = torch.addcmul(also, lengths, also)  # (lengths + 1) * also
        places = torch.arange(S, dtype=torch.int32, device=window.device)
        is_earlier = places < positions.unsqueeze(-1)  # (T, S)
        best = ((lengths * is_earlier).int() * S + places).amax(-1)  # (B, T): of the longest copies the newest
        following = window[:, -S:].gather(1, (best % S + 1).clamp(max=S - 1).long())
        return best // S, (following - 1).clamp(min=0)
