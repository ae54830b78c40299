"""Position schemes: how a GPT knows the order of its characters. One class each, behind one interface."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from model.config import ModelConfig
from model.kernels import hand_written


@dataclass(frozen=True)
class Places:
    """The T positions of the window that a forward pass computes, out of S that attention can reach.

    index: the positions, as a slice or as a tensor (T,); both select rows of a table of positions.
    visible: (T, S), the positions that each query may attend to, with a static `KVCache`; None means causal attention.
    rows: what the position scheme has computed for these positions, for all layers of one forward pass. No other pass
    may use the same object.
    """

    index: slice | Tensor
    visible: Tensor | None = None
    rows: dict[tuple[str, torch.dtype], tuple[Tensor, ...]] = field(default_factory=dict)


class PositionScheme:
    """The interface of all schemes. Each scheme overrides the method that it needs.

    A GPT creates its scheme once: `Scheme(config)`.
    """

    def embed(self, x: Tensor, places: Places) -> Tensor:
        """Return the embeddings x (B, T, C) with their positions."""
        return x

    def rotate(self, x: Tensor, places: Places) -> Tensor:
        """Return the queries and keys x (B, T, H + K, D) with their positions."""
        return x

    def bias(self, n_head: int, places: Places, n_keys: int) -> Tensor | None:
        """Return the bias (H, T, S) that is added to the scores, or None."""
        return None


class Learned(PositionScheme, nn.Embedding):
    """A learned vector for each position, added to the embeddings (Radford et al., 2018)."""

    def __init__(self, config: ModelConfig):
        super().__init__(config.block_size, config.n_embd)

    def embed(self, x: Tensor, places: Places) -> Tensor:
        return x + self.weight[places.index]  # (B, T, C) + (T, C)


class Tables(nn.Module):
    """Tables computed from the config and therefore not stored in checkpoints.

    They have the model's dtype. `.to()` and `.double()` call `_apply`, which converts from float64 again, so that a
    float64 model never gets values rounded to float32.
    """

    def __init__(self, exact: dict[str, Tensor]):
        super().__init__()
        self.exact = exact  # float64
        for name, table in exact.items():
            self.register_buffer(name, table.to(torch.get_default_dtype()), persistent=False)

    def _apply(self, fn: Callable, recurse: bool = True) -> "Tables":
        super()._apply(fn, recurse)
        for name, table in self.exact.items():
            setattr(self, name, table.to(getattr(self, name)))
        return self


class Rotary(PositionScheme, Tables):
    """Rotation of queries and keys by an angle proportional to their position (RoFormer, Su et al., 2021, eq. 15).

    Pair i of a head's D channels, channels i and i + D/2, is rotated by position * base^(-2 i / D) radians. So a score
    depends on the distance between query and key, not on their absolute positions.
    """

    def __init__(self, config: ModelConfig):
        sizes = {layer.head_size for layer in config.layers}
        tables = {f"cos_sin_{size}": rotary_table(size, config.block_size, config.rope_base) for size in sizes}
        super().__init__(tables)

    def rotate(self, x: Tensor, places: Places) -> Tensor:
        name = f"cos_sin_{x.size(-1)}"
        if (name, x.dtype) not in places.rows:
            places.rows[name, x.dtype] = getattr(self, name)[:, places.index].to(x.dtype).unbind()
        cos, sin = places.rows[name, x.dtype]  # (T, 1, D) each
        return rotate_pairs(x, cos, sin)


def rotary_table(head_size: int, block_size: int, base: float) -> Tensor:
    """Return the cosines and sines of `rotate_pairs` for every position, (2, block_size, 1, D), float64."""
    pair = torch.arange(head_size // 2, dtype=torch.float64)
    position = torch.arange(block_size, dtype=torch.float64)
    angle = torch.outer(position, float(base) ** (-2 * pair / head_size))  # (block_size, D/2)
    cos, sin = angle.cos(), angle.sin()
    return torch.stack((torch.cat((cos, cos), dim=1), torch.cat((-sin, sin), dim=1))).unsqueeze(2)


def rotate_pairs(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the pairs of channels of x (B, T, H, D): (a, b) becomes (a cos - b sin, b cos + a sin).

    cos and sin (T, 1, D) are those of each channel's angle; sin is negative in the first half of the channels.
    """
    if hand_written.is_faster(x):
        return hand_written.rotate_pairs(x, cos, sin)
    return x * cos + x.roll(x.size(-1) // 2, dims=-1) * sin


class Alibi(PositionScheme, Tables):
    """Each score falls with the distance from query to key (ALiBi, Press et al., 2022).

    Head h of H, counted from 1, subtracts 2^(-8 h / H) times the distance. If H is not a power of two, let n be the
    next lower one: the first n heads take the slopes for n heads, the others every second slope for 2 n heads.

    The penalties are T x S numbers for each head, so memory is quadratic in the context length.
    """

    def __init__(self, config: ModelConfig):
        super().__init__({f"slopes_{n}": alibi_slopes(n) for n in {layer.n_head for layer in config.layers}})

    def bias(self, n_head: int, places: Places, n_keys: int) -> Tensor:
        slopes = getattr(self, f"slopes_{n_head}")  # (H, 1, 1)
        every_place = torch.arange(n_keys, device=slopes.device)
        return slopes * (every_place - every_place[places.index][:, None])  # (H, T, S): 0 at a query's own place


def alibi_slopes(n_head: int) -> Tensor:
    """Return the slope of each head, (H, 1, 1), float64."""
    n = 1 << (n_head.bit_length() - 1)  # the largest power of two up to n_head

    def slopes(count: int) -> Tensor:
        return 2 ** (-8 * torch.arange(1, count + 1, dtype=torch.float64) / count)

    return torch.cat((slopes(n), slopes(2 * n)[::2][: n_head - n]))[:, None, None]


class NoPositions(PositionScheme, nn.Module):
    """No positions: only the causal mask tells the order of characters (NoPE, Kazemnejad et al., 2023)."""

    def __init__(self, _: ModelConfig):
        super().__init__()


# By the names of `model.positions`.
POSITIONS: dict[str, type[Learned | Rotary | Alibi | NoPositions]] = {
    "rope": Rotary,
    "learned": Learned,
    "alibi": Alibi,
    "none": NoPositions,
}
