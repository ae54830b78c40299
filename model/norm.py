"""Normalisation over the channels: of what a layer reads, and of queries and keys."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.config import LayerShape, ModelConfig

EPS = {dtype: torch.finfo(dtype).eps for dtype in (torch.float32, torch.float64)}


def rms_norm(x: Tensor, factor: Tensor | None = None) -> Tensor:
    """Return x / sqrt(mean(x^2) + eps) over the last dimension (Zhang and Sennrich, 2019), times a factor (..., 1)."""
    if x.device.type == "cpu":  # where `F.rms_norm` makes twice as many calls
        precise = torch.promote_types(x.dtype, torch.float32)  # bfloat16 is too coarse for the sum
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=precise)  # (..., 1)
        scale = (norm.square() / x.size(-1) + EPS[precise]).rsqrt()
        return x * (scale if factor is None else scale * factor).to(x.dtype)
    with torch.autocast(x.device.type, enabled=False):  # from PyTorch 2.12 on, autocast would convert x to float32
        y = F.rms_norm(x, (x.size(-1),))
    return y if factor is None else (y * factor).to(y.dtype)


class RMSNorm(nn.Module):
    """`rms_norm` as a layer, without parameters."""

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x)


def make_norm(config: ModelConfig) -> nn.Module:
    """Return the layer of `model.norm`: "rms", or "layer" (Ba et al., 2016) with weights and an optional bias."""
    return RMSNorm() if config.norm == "rms" else nn.LayerNorm(config.n_embd, bias=config.bias)


class QueryKeyNorm(nn.Module):
    """Normalise queries and keys (Henry et al., 2020): with `scaled_dot`, score(q, k) = s cos(q, k).

    (B, T, H + K, D) -> the same shape, with queries of length s and keys of length sqrt(D). The scale s limits how
    sharply a head can attend: no weight is more than e^(2 s) times another.

    learned: each head learns its s, stored as its logarithm; otherwise s = sqrt(D).
    """

    ones: Tensor

    def __init__(self, layer: LayerShape, *, learned: bool):
        super().__init__()
        self.root = layer.head_size**0.5  # the length of a normalised query or key
        self.log_scale = nn.Parameter(torch.empty(layer.n_head)) if learned else None
        self.register_buffer("ones", torch.ones(layer.n_kv_head), persistent=False)

    def forward(self, qk: Tensor) -> Tensor:
        if self.log_scale is None:
            return rms_norm(qk)
        factors = torch.cat((self.log_scale.exp() / self.root, self.ones))  # (H + K,)
        return rms_norm(qk, factors.unsqueeze(-1))
