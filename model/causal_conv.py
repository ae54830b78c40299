"""A causal convolution: each channel mixes with its own values at the positions just before."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.cache import LayerCache
from model.positions import Places


class CausalConv(nn.Module):
    """y_t = x_t + w_1 x_(t-1) + ... + w_(W-1) x_(t-W+1), channel by channel: (B, T, C) -> (B, T, C).

    A depthwise convolution of width W along the text, as Primer applies to queries, keys and values (So et al., 2021).
    Positions before the start count as 0.
    """

    def __init__(self, n_embd: int, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width - 1, 1, n_embd))  # (W - 1, 1, C), w_1 first

    def forward(self, x: Tensor, places: Places, cache: LayerCache | None = None) -> Tensor:
        """Convolve x (B, T, C) at positions `places`, continuing the positions in the cache."""
        T, n_before = x.size(1), len(self.weight)
        # (B, W - 1 + T, C): the W - 1 inputs before, then x
        whole = F.pad(x, (0, 0, n_before, 0)) if cache is None else cache.inputs.update(x, places.index)
        y = x
        for back, w in enumerate(self.weight.to(x.dtype), start=1):
            y = torch.addcmul(y, whole[:, n_before - back : n_before - back + T], w)  # (B, T, C)
        return y
