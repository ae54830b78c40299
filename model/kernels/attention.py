"""Attention by PyTorch's fused kernels or with a hand-written backward pass, whichever was measured to be fastest."""

import torch
import torch.nn.functional as F
from torch import Tensor

from model.kernels import hand_written
from model.scoring import Score, scaled_dot

# In bfloat16, training on a CPU is faster with the T x S weights in memory up to this number of keys.
LONGEST_EXPLICIT = 512


def choose_form(form: str, q: Tensor, k: Tensor, score: Score, *, only_causal: bool, dropout: float) -> str:
    """Return the form that `attend` computes: "explicit", its definition, "fused" or "hand-written".

    form: the one that is asked for, or "auto" for the fastest. only_causal: later keys are hidden, and nothing else is
    hidden or added. The fused kernels are the fastest, with two exceptions on a CPU: their backward pass in bfloat16
    takes 2 to 4 times as long at short lengths, and with dropout they have no fast path. There, a hand-written backward
    pass is the fastest if it can be used.
    """
    if form != "auto" or score is not scaled_dot:
        return form if score is scaled_dot else "explicit"
    T, S = q.size(-2), k.size(-2)
    slow_backward = q.requires_grad and q.dtype == torch.bfloat16 and S <= LONGEST_EXPLICIT
    if q.device.type != "cpu" or not (slow_backward or dropout):
        return "fused"
    return "hand-written" if only_causal and T == S and hand_written.is_faster(q) else "explicit"


def fused(
    q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None, causal: bool, bias: Tensor | None, dropout: float
) -> Tensor:
    """Compute `attend` by PyTorch's fused kernels, which do not store T x S weights unless there is a T x S bias."""
    T, S = q.size(-2), k.size(-2)
    grouped = q.ndim == 4 and q.size(1) != k.size(1)
    mask, is_causal = visible, causal and T > 1  # a single query, the last position, sees all keys
    # PyTorch's is_causal aligns the first query with the first key, and allows no mask.
    if is_causal and (T < S or visible is not None or bias is not None):
        past = torch.ones(T, S, dtype=torch.bool, device=q.device).tril(S - T)
        mask, is_causal = past if mask is None else mask & past, False
    if bias is not None:
        bias = bias.to(q.dtype)
        mask = bias if mask is None else bias.masked_fill(~mask, float("-inf"))
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=is_causal, enable_gqa=grouped
    )
