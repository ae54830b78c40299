"""Muon: momentum with orthogonalised matrix updates (Jordan et al., 2024, kellerjordan.github.io/posts/muon)."""

from collections import defaultdict
from collections.abc import Iterable
from functools import partial

import torch
from torch import Tensor

from training.processes.one_process import Matrices, OneProcess

# Quintic Newton-Schulz coefficients of the source: after five iterations singular values are near 1, not exactly 1.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)


def orthogonalise(matrices: Tensor, *, iterations: int = 5, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """Return approximations of the nearest semi-orthogonal matrices, with singular values between about 0.7 and 1.2.

    matrices (n, rows, columns), rows <= columns -> the same shape, computed in dtype.
    """
    a, b, c = COEFFICIENTS
    x = matrices.to(dtype)
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)  # the iteration converges for a spectral norm up to 1
    rows, columns = x.shape[1:]
    # Faster for matrices that are wide and not tiny; bfloat16 would be too coarse.
    if dtype != torch.bfloat16 and rows >= 48 and columns > 1.5 * rows:
        for steps in ((iterations + 1) // 2, iterations // 2):  # in two halves: rounding grows in G at every step
            x = _product_of_factors(x @ x.mT, steps) @ x
        return x
    for _ in range(iterations):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


def _product_of_factors(gram: Tensor, iterations: int) -> Tensor:
    """Return the product (n, rows, rows) of all iterations' factors a + b G + c G^2, given G = x x^T of the first x."""
    a, b, c = COEFFICIENTS
    product: Tensor | None = None
    for i in range(iterations):
        factor = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        factor.diagonal(dim1=1, dim2=2).add_(a)
        product = factor if product is None else factor @ product
        if i < iterations - 1:
            gram = factor @ gram @ factor  # of the next x, which is factor @ x
    assert product is not None
    return product


class Muon(torch.optim.Optimizer):
    """Muon for the matrices (2-D parameters) of hidden layers.

    Without weight decay, the update equals that of `torch.optim.Muon`, but all matrices of one shape, transposed or
    not, share one batched product, which halves the time for small models. The step of a (rows, columns) matrix is
    scaled by sqrt(max(1, rows / columns)), so that the change of its outputs does not depend on its shape.

    Weight decay is cautious (Chen et al., 2025): a step multiplies a weight by 1 - lr * weight_decay only if the update
    also moves it towards 0, so decay never works against the update.

    dtype: of the products; bfloat16 is precise enough and fast on hardware that supports it. processes: those that
    train together; each orthogonalises a part of the matrices. A step changes nothing if the attribute `found_inf`, a
    tensor (), is 1: PyTorch's fused optimisers have the same attribute. Raises ValueError if a parameter is not a
    matrix.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        *,
        lr: float = 0.02,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        dtype: torch.dtype = torch.bfloat16,
        processes: OneProcess | None = None,
    ):
        self.dtype, self.processes = dtype, processes or OneProcess()
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        for group in self.param_groups:
            if any(p.ndim != 2 for p in group["params"]):
                raise ValueError("Muon takes matrices only; give other parameters to AdamW")

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override] # no closure: the gradients are given
        found_inf: Tensor | None = getattr(self, "found_inf", None)
        if found_inf is not None and found_inf.device.type == "cpu":
            if found_inf:
                return
            found_inf = None  # a GPU decides by itself, below, because asking it would make it wait
        for group in self.param_groups:
            lr, momentum = group["lr"], group["momentum"]
            on_device = isinstance(lr, Tensor)  # in device memory, where a captured step reads it
            trained = [p for p in group["params"] if p.grad is not None]
            for p in trained:
                if not self.state[p]:
                    self.state[p]["momentum_buffer"] = torch.zeros_like(p)
            local = self.processes.local
            params, grads = [local(p) for p in trained], [local(p.grad) for p in trained]
            buffers = [local(self.state[p]["momentum_buffer"]) for p in trained]
            if found_inf is not None:
                buffers_before = [buffer.clone() for buffer in buffers]
            torch._foreach_lerp_(buffers, grads, 1 - momentum)
            updates = list(torch._foreach_lerp(grads, buffers, momentum))  # Nesterov: look one step ahead
            shapes = [p.shape for p in trained]
            updates = self.processes.on_whole(self._orthogonalised, updates, shapes)
            for p, (rows, columns), update in zip(params, shapes, updates, strict=True):
                scale = max(1, rows / columns) ** 0.5
                # A copy in p's layout and dtype: elementwise operations on a transposed matrix are slow.
                update = update.to(p.dtype).contiguous()
                if group["weight_decay"]:
                    agreeing = (p * update).gt_(0)  # 1 where the update moves a weight towards 0, otherwise 0
                    update.addcmul_(p, agreeing, value=group["weight_decay"] / scale)
                if found_inf is not None:
                    update.masked_fill_(found_inf > 0, 0)
                if on_device:
                    p.sub_(update * (lr * scale))
                else:
                    p.sub_(update, alpha=lr * scale)
            if found_inf is not None:
                for buffer, before in zip(buffers, buffers_before, strict=True):
                    buffer.copy_(torch.where(found_inf > 0, before, buffer))

    def _orthogonalised(self, matrices: Matrices) -> Matrices:
        """Return the orthogonalised matrices, in the same order."""
        same_shape = defaultdict(list)
        for i, matrix in enumerate(matrices):
            rows, columns = matrix.shape
            wide = matrix if rows <= columns else matrix.mT
            same_shape[wide.shape].append((i, wide))
        results: dict[int, Tensor] = {}
        for pairs in same_shape.values():
            stacked = torch.stack([wide for _, wide in pairs])
            orthogonal = self.processes.divide(partial(orthogonalise, dtype=self.dtype), stacked)
            for (i, wide), update in zip(pairs, orthogonal, strict=True):
                results[i] = update if wide.shape == matrices[i].shape else update.mT
        return [results[i] for i in range(len(matrices))]
