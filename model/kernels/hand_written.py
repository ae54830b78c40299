"""Operations with hand-written backward passes, for training.

Each equals the plain operations named in its docstring, in values and gradients, and is up to twice as fast: autograd
runs one operation at a time and stores the inputs of each, and memory limits the speed of these operations.
"""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from model.dropout import keep_mask


def is_faster(x: Tensor) -> bool:
    """Return whether to use these operations on x: on a CPU or GPU, if it needs gradients, not under torch.compile."""
    return x.requires_grad and x.device.type in ("cpu", "cuda") and not torch.compiler.is_compiling()


class RMSNormFunction(Function):
    """`norm.rms_norm` of x (..., C) on a CPU, under autocast in the dtype of matrix products.

    y = x r f with r = 1 / sqrt(mean(x^2) + eps) and a factor f (..., 1), or None for f = 1. With the mean over
    channels, dx = r f (dy - y mean(dy y) / f^2) and df = sum(dy y) / f.
    """

    @staticmethod
    def forward(ctx, x: Tensor, factor: Tensor | None = None) -> Tensor:
        # Like PyTorch, sum in float32 and take its eps even if x is coarser.
        precise = torch.promote_types(x.dtype, torch.float32)
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=precise)  # (..., 1)
        r = (norm.square_() / x.size(-1) + torch.finfo(precise).eps).rsqrt_()
        rf = (r if factor is None else r * factor).to(x.dtype)
        y = x * rf
        if torch.is_autocast_enabled("cpu"):
            y = y.to(torch.get_autocast_dtype("cpu"))
        ctx.save_for_backward(y, rf, factor)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy: Tensor) -> tuple[Tensor, Tensor | None]:
        y, rf, factor = ctx.saved_tensors
        total = torch.linalg.vecdot(dy, y).unsqueeze(-1)  # (..., 1)
        mean, df = total / y.size(-1), None
        if factor is not None:
            mean, df = (mean / factor.square()).to(dy.dtype), (total / factor).sum_to_size(factor.shape)
        return torch.addcmul(dy, y, mean, value=-1) * rf, df


class SquaredReLUFunction(Function):
    """`F.relu(x).square()`: y = max(x, 0)^2, dx = 2 max(x, 0) dy."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        positive = F.relu(x)
        ctx.save_for_backward(positive)
        return positive * positive

    @staticmethod
    @once_differentiable
    def backward(ctx, dy: Tensor) -> Tensor:
        (positive,) = ctx.saved_tensors
        return (dy * positive).mul_(2)


class CausalAttentionFunction(Function):
    """`attend(q, k, v, causal=True, dropout=dropout)` of q (..., H, T, D), k and v (..., K, T, D).

    y = (m p) v with p = softmax(q k^T / sqrt(D)) over each query's past and m the dropout mask.

    With s the scores: dv = (m p)^T dy, dp = m (dy v^T), ds = p (dp - sum(p dp)), dq = ds k / sqrt(D),
    dk = ds^T q / sqrt(D). The G query heads that share a key head are G T queries to it, so the products over queries
    add up their gradients. Below, N counts sequences and key heads.
    """

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor, dropout: float = 0.0) -> Tensor:
        shape, (T, D) = q.shape, k.shape[-2:]
        k, v = k.reshape(-1, T, D), v.reshape(-1, T, v.size(-1))
        q = q.reshape(len(k), -1, D)  # (N, G T, D)
        # The product adds the mask, which is 0 where a query may attend.
        future = torch.full((T, T), float("-inf"), dtype=q.dtype).triu(1).repeat(q.size(1) // T, 1)  # (G T, T)
        p = torch.baddbmm(future, q, k.mT, alpha=D**-0.5).softmax(dim=-1)  # (N, G T, T)
        m = keep_mask(p.view(shape[0], -1), dropout).view_as(p) if dropout else None
        ctx.save_for_backward(q, k, v, p, m)
        return torch.bmm(p if m is None else m * p, v).view(*shape[:-1], v.size(-1))

    @staticmethod
    @once_differentiable
    def backward(ctx, dy: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q, k, v, p, m = ctx.saved_tensors
        scale = q.size(-1) ** -0.5
        *queries, _ = dy.shape
        keys = (*dy.shape[:-3], -1, k.size(1))
        dy = dy.reshape(*q.shape[:-1], -1)
        dp = torch.bmm(dy, v.mT)  # (N, G T, T)
        dp = dp if m is None else dp.mul_(m)
        ds = torch.ops.aten._softmax_backward_data(dp, p, -1, p.dtype)
        dq = torch.baddbmm(q, ds, k, beta=0, alpha=scale)
        dk = torch.baddbmm(k, ds.mT, q, beta=0, alpha=scale)
        dv = torch.bmm((p if m is None else m * p).mT, dy)
        return dq.view(*queries, -1), dk.view(*keys, k.size(-1)), dv.view(*keys, v.size(-1)), None


rms_norm = RMSNormFunction.apply
squared_relu = SquaredReLUFunction.apply
causal_attention = CausalAttentionFunction.apply
