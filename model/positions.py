"""Position embeddings: how a GPT knows the order of its characters. One class each, behind one interface."""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from model.config import ModelConfig

ROPE_BASE = 10_000.0  # as in the source; the slowest pair of channels hardly rotates


class PositionEmbedding(nn.Module):
    """No positions: only the causal mask tells the order of characters (NoPE, Kazemnejad et al., 2023).

    It is the interface of the others, each of which overrides the method that it needs.
    """

    def __init__(self, config: ModelConfig):
        super().__init__()

    def embed(self, x: Tensor, places: "Places") -> Tensor:
        """Return the embeddings x (B, T, C) with their positions."""
        return x

    def rotate(self, x: Tensor, places: "Places") -> Tensor:
        """Return the queries and keys x (B, T, H + K, D) with their positions."""
        return x

    def bias(self, n_head: int, places: "Places", n_keys: int) -> Tensor | None:
        """Return the bias (H, T, S) that is added to the scores, or None."""
        return None


@dataclass(frozen=True)
class Places:
    """The T positions of the window that a forward pass computes, and what its parts share.

    index: the positions.
    window: (B, n_before + S), the characters up to the last of them, as ids plus 1; 0 before the window.
    weights: receives the attention weights of each layer, if it is a list.
    rotations: the cosines and sines of these positions, by the size of a head.
    """

    index: slice
    window: Tensor
    position_embedding: PositionEmbedding
    weights: list[Tensor] | None = None
    rotations: dict[int, tuple[Tensor, ...]] = field(default_factory=dict)

    def characters(self, n_before: int) -> Tensor:
        """Return (B, n_before + T) of the window: the characters at these positions, after those before them."""
        n = self.index.stop - self.index.start + n_before
        return self.window[:, self.window.size(1) - n :]


class Learned(PositionEmbedding, nn.Embedding):
    """A learned vector for each position, added to the embeddings (Radford et al., 2018)."""

    def __init__(self, config: ModelConfig):
        nn.Embedding.__init__(self, config.block_size, config.n_embd)

    def embed(self, x: Tensor, places: Places) -> Tensor:
        return x + self.weight[places.index]  # (B, T, C) + (T, C)


class Rotary(PositionEmbedding):
    """Rotation of queries and keys by an angle proportional to their position (RoFormer, Su et al., 2021, eq. 15).

    Pair i of a head's D channels, channels i and i + D/2, is rotated by position * ROPE_BASE^(-2 i / D) radians. So a
    score depends on the distance between query and key, not on their absolute positions.
    """

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        for size in {layer.head_size for layer in config.layers}:
            pair = torch.arange(size // 2, dtype=torch.float64)
            position = torch.arange(config.block_size, dtype=torch.float64)
            angle = torch.outer(position, ROPE_BASE ** (-2 * pair / size))  # (block_size, D/2)
            cos, sin = angle.cos(), angle.sin()
            table = torch.stack((torch.cat((cos, cos), dim=1), torch.cat((-sin, sin), dim=1))).unsqueeze(2)
            # (2, block_size, 1, D): the cosines and sines of each channel's angle
            self.register_buffer(f"cos_sin_{size}", table.to(torch.get_default_dtype()), persistent=False)

    def rotate(self, x: Tensor, places: Places) -> Tensor:
        size = x.size(-1)
        if size not in places.rotations:  # all layers of a pass have the same dtype
            places.rotations[size] = getattr(self, f"cos_sin_{size}")[:, places.index].to(x.dtype).unbind()
        cos, sin = places.rotations[size]  # (T, 1, D) each; sin is negative in the first half of the channels
        # A pair (a, b) becomes (a cos - b sin, b cos + a sin).
        return torch.addcmul(x * cos, x.roll(size // 2, dims=-1), sin)


class Alibi(PositionEmbedding):
    """Each score falls with the distance from query to key (ALiBi, Press et al., 2022).

    Head h of H, counted from 1, subtracts 2^(-8 h / H) times the distance. If H is not a power of two, let n be the
    next lower one: the first n heads take the slopes for n heads, the others every second slope for 2 n heads.

    The penalties are T x S numbers for each head, so memory is quadratic in the context length.
    """

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        for n in {layer.n_head for layer in config.layers}:
            self.register_buffer(f"slopes_{n}", alibi_slopes(n), persistent=False)

    def bias(self, n_head: int, places: Places, n_keys: int) -> Tensor:
        slopes = getattr(self, f"slopes_{n_head}")  # (H, 1, 1)
        every_place = torch.arange(n_keys, device=slopes.device)
        return slopes * (every_place - every_place[places.index][:, None])  # (H, T, S): 0 at a query's own place


def alibi_slopes(n_head: int) -> Tensor:
    """Return the slope of each head, (H, 1, 1)."""
    n = 1 << (n_head.bit_length() - 1)  # the largest power of two up to n_head

    def slopes(count: int) -> Tensor:
        return 2 ** (-8 * torch.arange(1, count + 1, dtype=torch.float64) / count)

    every_slope = torch.cat((slopes(n), slopes(2 * n)[::2][: n_head - n]))
    return every_slope.to(torch.get_default_dtype())[:, None, None]


# By the names of `model.positions`.
POSITIONS: dict[str, type[PositionEmbedding]] = {
    "rope": Rotary,
    "learned": Learned,
    "alibi": Alibi,
    "none": PositionEmbedding,
}
