"""Dropout masks for a CPU, from a quarter of the random bits that PyTorch draws."""

import torch
from torch import Tensor

LEVELS = 1 << 16  # 16 random bits decide about each element


def keep_mask(x: Tensor, p: float) -> Tensor:
    """Return what dropout multiplies x by, in x's shape and type: 0 with probability p, otherwise 1 / (1 - p).

    p is rounded to a multiple of 2^-16. PyTorch draws 64 bits in the time that it takes to decide about one element;
    here they decide about four.
    """
    if not 0 <= p < 1:
        raise ValueError(f"dropout={p} must be at least 0 and below 1")
    n_dropped = min(round(p * LEVELS), LEVELS - 1)  # of the LEVELS possible numbers
    numbers = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    numbers = numbers.view(torch.int16)[: x.numel()].view(x.shape)
    return (numbers >= n_dropped - LEVELS // 2).to(x.dtype).mul_(LEVELS / (LEVELS - n_dropped))
