"""Dropout masks for a CPU, which need a quarter of the random bits that PyTorch's dropout draws."""

import torch
from torch import Tensor

LEVELS = 1 << 16  # 16 random bits decide about each element


def keep_mask(x: Tensor, p: float) -> Tensor:
    """Return the mask by which dropout multiplies x, in x's shape and dtype: 0 with probability p, else 1 / (1 - p).

    p is rounded to a multiple of 2^-16. Drawing 64 random bits takes as long as PyTorch needs for one element; here
    they serve four elements. Raises ValueError unless 0 <= p < 1.
    """
    if not 0 <= p < 1:
        raise ValueError(f"dropout={p} must be at least 0 and below 1")
    n_dropped = min(round(p * LEVELS), LEVELS - 1)  # of the LEVELS possible numbers
    numbers = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    numbers = numbers.view(torch.int16)[: x.numel()].view(x.shape)
    return (numbers >= n_dropped - LEVELS // 2).to(x.dtype).mul_(LEVELS / (LEVELS - n_dropped))
