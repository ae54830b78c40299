"""Dropout: in training, zero each element with probability p and scale up the others."""

import torch
import torch.nn.functional as F
from torch import Tensor

from model.kernels.dropout import keep_mask


def dropout(x: Tensor, p: float, *, training: bool = True) -> Tensor:
    """Zero each element of x with probability p and divide the others by 1 - p (Srivastava et al., 2014).

    Return x itself outside training. On a CPU this takes an eighth of the time of `F.dropout`. Raises ValueError in
    training if p is not a probability; a CPU refuses 1 as well.
    """
    if not (p and training):
        return x
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(x, p)
    return x * keep_mask(x, p)
