"""Normalisation over the channels."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.kernels import hand_written

EPS = {dtype: torch.tensor(torch.finfo(dtype).eps, dtype=dtype) for dtype in (torch.float32, torch.float64)}


def rms_norm(x: Tensor, factor: Tensor | None = None) -> Tensor:
    """Return x / sqrt(mean(x^2) + eps) over the last dimension (Zhang and Sennrich, 2019), times a factor (..., 1)."""
    if x.device.type == "cpu" and hand_written.is_faster(x):
        return hand_written.rms_norm(x, factor)
    if x.dtype in EPS and x.device.type == "cpu" and not torch.compiler.is_compiling():
        # `F.rms_norm` makes twice as many calls, and for a single position only calls take time.
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)  # (..., 1)
        y = x * torch.addcmul(EPS[x.dtype], norm, norm, value=1 / x.size(-1)).rsqrt_()
    else:
        with torch.autocast(x.device.type, enabled=False):  # from PyTorch 2.12 on, autocast would convert x to float32
            y = F.rms_norm(x, (x.size(-1),))
    return y if factor is None else (y * factor).to(y.dtype)


class RMSNorm(nn.Module):
    """`rms_norm` as a layer, without parameters."""

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x)


def make_norm(name: str, width: int, *, bias: bool) -> nn.Module:
    """Return the layer of `model.norm`: "rms", or "layer" (Ba et al., 2016) with weights and an optional bias."""
    return RMSNorm() if name == "rms" else nn.LayerNorm(width, bias=bias)
