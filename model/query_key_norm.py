"""Queries and keys of fixed lengths, so that scores do not depend on the width of the heads."""

import torch
from torch import Tensor, nn

from model.cache import LayerCache
from model.config import LayerShape
from model.norm import rms_norm


class QueryKeyNorm(nn.Module):
    """Normalise queries and keys (Henry et al., 2020): with `scaled_dot`, score(q, k) = s cos(q, k).

    (B, T, H + K, D) -> the same shape, with queries of length s and keys of length sqrt(D). The scale s limits how
    sharply a head can attend: no weight is more than e^(2 s) times another.

    scale: s; or "learned", one s per head, stored as its logarithm; or "sqrt_head_size", s = sqrt(D).
    """

    def __init__(self, layer: LayerShape, scale: float | str):
        super().__init__()
        self.layer = layer
        self.fixed_scale = layer.head_size**0.5 if isinstance(scale, str) else scale  # unused if learned
        self.log_scale = nn.Parameter(torch.empty(layer.n_head)) if scale == "learned" else None

    def forward(self, qk: Tensor, cache: LayerCache | None = None) -> Tensor:
        if self.log_scale is None and self.fixed_scale == self.layer.head_size**0.5:
            return rms_norm(qk)
        return rms_norm(qk, self.factors(qk) if cache is None else cache.once(self.factors, qk))

    def factors(self, like: Tensor) -> Tensor:
        """Return what multiplies the normalised queries and keys, whose length is sqrt(D): (H + K, 1)."""
        of_queries = self.scales(like) / self.layer.head_size**0.5  # (H,)
        return torch.cat((of_queries, of_queries.new_ones(self.layer.n_kv_head))).unsqueeze(-1)  # (H + K, 1)

    def scales(self, like: Tensor) -> Tensor:
        """Return the scale s of each head, (H,), on the device of `like` and at least in its precision."""
        if self.log_scale is not None:
            return self.log_scale.exp()
        dtype = torch.promote_types(like.dtype, torch.float32)
        return torch.full((self.layer.n_head,), self.fixed_scale, dtype=dtype, device=like.device)
