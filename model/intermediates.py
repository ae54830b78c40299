"""What a forward pass computes on its way to the logits, for inspection."""

from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class Intermediates:
    """Lists that a forward pass fills, one entry per layer; see `GPT.forward`.

    weights: attention weights (B, H, T, S), without dropout. outputs: of the blocks (B, T, C).
    """

    weights: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
