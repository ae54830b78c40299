"""Normalisation over the channels."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from model.kernels import hand_written


def rms_norm(x: Tensor, factor: Tensor | None = None) -> Tensor:
    """Return x / sqrt(mean(x^2)) over the last dimension (Zhang and Sennrich, 2019), times a factor (..., 1)."""
    if hand_written.is_faster(x):
        return hand_written.rms_norm(x, factor)
    y = F.rms_norm(x, (x.size(-1),))
    return y if factor is None else (y * factor).to(y.dtype)


class RMSNorm(nn.Module):
    """`rms_norm` as a layer, without parameters."""

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x)


def make_norm(name: str, width: int, *, bias: bool) -> nn.Module:
    """Return the layer of `model.norm`: "rms", or "layer" (Ba et al., 2016) with weights and an optional bias."""
    norms: dict[str, Callable[[], nn.Module]] = {"rms": RMSNorm, "layer": lambda: nn.LayerNorm(width, bias=bias)}
    return norms[name]()
