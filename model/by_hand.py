"""Forward and backward passes written out, for training on a CPU.

Each is equal to the plain operations named in its docstring, in values and gradients, and up to twice as fast: autograd
goes back one operation at a time and keeps what each of them read, and on a CPU it is memory that training waits for.
"""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from model.dropout import keep_mask


def worthwhile(x: Tensor) -> bool:
    """Whether these forms are the faster ones: not on a GPU, and not where a compiler sees the plain operations."""
    return x.device.type == "cpu" and x.requires_grad and not torch.compiler.is_compiling()


class RMSNorm(Function):
    """y = x r with r = 1 / sqrt(mean(x^2) + eps), over the last dimension: `F.rms_norm`. x (..., C) -> (..., C).

    y is of the type that products are computed in. With the mean over channels, dx = r (dy - y mean(dy y)).
    """

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        # Sums and eps are those of float32 where x is coarser, as in PyTorch's own.
        precise = torch.promote_types(x.dtype, torch.float32)
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=precise)  # (..., 1)
        r = (norm.square_() / x.size(-1) + torch.finfo(precise).eps).rsqrt_().to(x.dtype)
        y = x * r
        if torch.is_autocast_enabled("cpu"):
            y = y.to(torch.get_autocast_dtype("cpu"))
        ctx.save_for_backward(y, r)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy: Tensor) -> Tensor:
        y, r = ctx.saved_tensors
        mean = torch.linalg.vecdot(dy, y).unsqueeze(-1) / y.size(-1)  # (..., 1)
        return torch.addcmul(dy, y, mean, value=-1) * r


class SquaredReLU(Function):
    """y = max(x, 0)^2, dx = 2 max(x, 0) dy: `F.relu(x).square()`."""

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


class Rotate(Function):
    """Turns pairs of channels by an angle; the gradient is turned back: `positions.rotate`.

    x (..., T, H, D), cos and sin (T, 1, D/2) -> (..., T, H, D).
    """

    @staticmethod
    def forward(ctx, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _turn(x, cos, sin)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _turn(dy, cos, -sin), None, None


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    (first, second), (y_first, y_second) = x.chunk(2, dim=-1), y.chunk(2, dim=-1)
    torch.mul(first, cos, out=y_first).addcmul_(second, sin, value=-1)
    torch.mul(second, cos, out=y_second).addcmul_(first, sin)
    return y


class CausalAttention(Function):
    """y = (m p) v with p = softmax(q k^T / sqrt(D)) over each query's past: `attend(..., causal=True)`.

    q, k, v (..., T, D) -> (..., T, D). m is the mask of dropout. That of the future is added to the scores as they are
    computed. With s the scores: dv = (m p)^T dy, dp = m (dy v^T), ds = p (dp - sum(p dp)), dq = ds k / sqrt(D),
    dk = ds^T q / sqrt(D).
    """

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor, dropout: float = 0.0) -> Tensor:
        shape, (T, D) = q.shape, q.shape[-2:]
        q, k, v = (t.reshape(-1, T, D) for t in (q, k, v))
        future = torch.full((T, T), float("-inf"), dtype=q.dtype).triu(1)  # 0 where a query may look
        p = torch.baddbmm(future, q, k.mT, alpha=D**-0.5).softmax(dim=-1)  # (N, T, T)
        m = keep_mask(p, dropout) if dropout else None
        ctx.save_for_backward(q, k, v, p, m)
        return torch.bmm(p if m is None else m * p, v).view(shape)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q, k, v, p, m = ctx.saved_tensors
        shape, scale = dy.shape, q.size(-1) ** -0.5
        dy = dy.reshape(q.shape)
        dp = torch.bmm(dy, v.mT)  # (N, T, T)
        dp = dp if m is None else dp.mul_(m)
        ds = torch.ops.aten._softmax_backward_data(dp, p, -1, p.dtype)
        dq = torch.baddbmm(q, ds, k, beta=0, alpha=scale)
        dk = torch.baddbmm(k, ds.mT, q, beta=0, alpha=scale)
        dv = torch.bmm((p if m is None else m * p).mT, dy)
        return dq.view(shape), dk.view(shape), dv.view(shape), None
