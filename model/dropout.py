"""Dropout: in training, each number is zero with probability p, and the others make up for it."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEVELS = 1 << 16  # a random number of 16 bits decides about each element


def dropout(x: Tensor, p: float) -> Tensor:
    """x, each element zero with probability p and otherwise divided by 1 - p (Srivastava et al., 2014).

    On a CPU as `F.dropout`, with p rounded to a multiple of 2^-16, in an eighth of the time.
    """
    if not p:
        return x
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(x, p)
    return x * keep_mask(x, p)


def keep_mask(x: Tensor, p: float) -> Tensor:
    """What dropout multiplies x by, of its shape and type: 0 with probability p, otherwise 1 / (1 - p).

    PyTorch draws a number of 64 bits in the time of one that decides about a single element; it decides about four.
    """
    n_dropped = min(round(p * LEVELS), LEVELS - 1)  # of the LEVELS possible numbers
    numbers = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    numbers = numbers.view(torch.int16)[: x.numel()].view(x.shape)
    return (numbers >= n_dropped - LEVELS // 2).to(x.dtype).mul_(LEVELS / (LEVELS - n_dropped))


class Dropout(nn.Module):
    """`dropout` in training, nothing otherwise."""

    def __init__(self, p: float):
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p) if self.training else x
