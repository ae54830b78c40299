"""Muon: momentum with orthogonalised matrix updates (Jordan et al., 2024, kellerjordan.github.io/posts/muon)."""

from collections.abc import Iterable

import torch
from torch import Tensor

from training.optim.quick_start import Optimizer

# Quintic Newton-Schulz coefficients of the source: after five iterations singular values are near 1, not exactly 1.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
MOMENTUM = 0.95


def orthogonalise(matrices: Tensor, *, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """Return approximations of the nearest semi-orthogonal matrices, with singular values between about 0.7 and 1.2.

    matrices (n, rows, columns) -> the same shape, computed in dtype.
    """
    if matrices.size(1) > matrices.size(2):  # the products below are smaller for wide matrices
        return orthogonalise(matrices.mT, dtype=dtype).mT
    a, b, c = COEFFICIENTS
    x = matrices.to(dtype)
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)  # the iteration converges for a spectral norm up to 1
    for _ in range(5):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


class Muon(Optimizer):
    """Muon for the matrices (2-D parameters) of hidden layers.

    Without weight decay, the update equals that of `torch.optim.Muon`, but all matrices of one shape share one batched
    product, which halves the time for small models. The step of a (rows, columns) matrix is scaled by
    sqrt(max(1, rows / columns)), so that the change of its outputs does not depend on its shape.

    Weight decay is cautious (Chen et al., 2025): a step multiplies a weight by 1 - lr * weight_decay only if the update
    also moves it towards 0, so decay never works against the update.

    dtype: of the products; bfloat16 is precise enough and fast on hardware that supports it. A group's `lr` may be a
    tensor, which a CUDA graph reads at every replay; its weight decay is a constant of the graph.
    """

    def __init__(
        self, params: Iterable[Tensor], *, lr: float, weight_decay: float, dtype: torch.dtype = torch.bfloat16
    ):
        self.dtype = dtype
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override] # no closure: the gradients are given
        for group in self.param_groups:
            for shape in dict.fromkeys(p.shape for p in group["params"]):
                params = [p for p in group["params"] if p.shape == shape and p.grad is not None]
                if params:
                    self._step(params, group["lr"], group["weight_decay"])

    def _step(self, params: list[Tensor], lr: float | Tensor, weight_decay: float) -> None:
        """Update matrices of one shape."""
        for p in params:
            if not self.state[p]:
                self.state[p]["momentum_buffer"] = torch.zeros_like(p)
        buffers = [self.state[p]["momentum_buffer"] for p in params]
        grads = [p.grad for p in params if p.grad is not None]
        torch._foreach_lerp_(buffers, grads, 1 - MOMENTUM)
        ahead = torch.stack(torch._foreach_lerp(grads, buffers, MOMENTUM))  # Nesterov: (n, rows, columns)
        # A copy in the parameters' layout and dtype: elementwise operations on transposed matrices are slow.
        update = orthogonalise(ahead, dtype=self.dtype).to(params[0].dtype).contiguous()
        scale = max(1, params[0].size(0) / params[0].size(1)) ** 0.5
        if weight_decay:
            weights = torch.stack(params)
            agreeing = (weights * update).gt_(0)  # 1 where the update moves a weight towards 0, otherwise 0
            update.addcmul_(weights, agreeing, value=weight_decay / scale)
        torch._foreach_sub_(params, update.mul_(lr * scale).unbind())
