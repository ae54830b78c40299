"""Rotary positions: queries and keys turned by an angle that grows with their position."""

import torch
from torch import Tensor, nn

from model import by_hand


class Rotary(nn.Module):
    """Cosines and sines of every position's angles (RoFormer, Su et al., 2021, eq. 15).

    Pair i of a head's D channels turns by `position * base ** (-2 i / D)` radians, so a score depends on how far apart
    query and key are and not on where they stand. The pairs are channels i and i + D/2.
    """

    def __init__(self, head_size: int, block_size: int, *, base: float = 10_000.0):
        super().__init__()
        if head_size % 2:
            raise ValueError(f"head_size={head_size} must be even: channels are rotated in pairs")
        pair = torch.arange(head_size // 2, dtype=torch.float64)
        angle = torch.outer(torch.arange(block_size, dtype=torch.float64), base ** (-2 * pair / head_size))
        # Not part of the checkpoint: they follow from the config.
        self.register_buffer("cos", angle.cos().float(), persistent=False)  # (block_size, D/2)
        self.register_buffer("sin", angle.sin().float(), persistent=False)

    def forward(self, start: int, length: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines, each (length, 1, D/2), of positions start to start + length - 1."""
        rows = slice(start, start + length)
        return self.cos[rows, None], self.sin[rows, None]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns x (..., T, H, D) by the angles of its positions, given as cosines and sines (T, 1, D/2)."""
    if by_hand.worthwhile(x):
        return by_hand.Rotate.apply(x, cos.to(x.dtype), sin.to(x.dtype))
    first, second = x.chunk(2, dim=-1)  # (..., T, H, D/2) each
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
