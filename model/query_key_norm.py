"""Queries and keys of fixed lengths, so that scores do not depend on the width of the heads."""

import torch
from torch import Tensor, nn

from model.config import LayerShape
from model.norm import rms_norm


class QueryKeyNorm(nn.Module):
    """Normalise queries and keys (Henry et al., 2020): with `scaled_dot`, score(q, k) = s cos(q, k).

    (B, T, H + K, D) -> the same shape, with queries of length s and keys of length sqrt(D). The scale s limits how
    sharply a head can attend: no weight is more than e^(2 s) times another.

    scale: s; or "learned", one s per head, stored as its logarithm; or "sqrt_head_size", s = sqrt(D).
    """

    fixed_scales: Tensor
    ones: Tensor

    def __init__(self, layer: LayerShape, scale: float | str):
        super().__init__()
        self.plain = scale in ("sqrt_head_size", layer.head_size**0.5)
        self.root = layer.head_size**0.5  # the length of a normalised query or key
        self.log_scale = nn.Parameter(torch.empty(layer.n_head)) if scale == "learned" else None
        fixed = torch.full((layer.n_head,), self.root if isinstance(scale, str) else scale)
        self.register_buffer("fixed_scales", fixed, persistent=False)
        self.register_buffer("ones", torch.ones(layer.n_kv_head), persistent=False)

    def forward(self, qk: Tensor) -> Tensor:
        if self.plain:
            return rms_norm(qk)
        return rms_norm(qk, torch.cat((self.scales() / self.root, self.ones)).unsqueeze(-1))  # times (H + K, 1)

    def scales(self) -> Tensor:
        """Return the scale s of each head, (H,)."""
        return self.fixed_scales if self.log_scale is None else self.log_scale.exp()
