"""The MLP (feed-forward network) of a block transforms each position alone."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from model.dropout import dropout
from model.kernels import hand_written


def squared_relu(x: Tensor) -> Tensor:
    """Return max(x, 0)^2 (So et al., 2021)."""
    return hand_written.squared_relu(x) if hand_written.is_faster(x) else F.relu(x).square()


def swiglu(x: Tensor) -> Tensor:
    """Return silu(gate) * y (Shazeer, 2020) of x (..., 2 n), a gate and y side by side: (..., n)."""
    gate, y = x.chunk(2, dim=-1)
    return F.silu(gate) * y


# By the names of `model.mlp`; gelu (Hendrycks and Gimpel, 2016) is x times the normal cumulative distribution at x.
NONLINEARITIES: dict[str, Callable[[Tensor], Tensor]] = {"relu2": squared_relu, "gelu": F.gelu, "swiglu": swiglu}


class MLP(nn.Module):
    """Two linear maps with a nonlinearity between them: (B, T, C) -> (B, T, C).

    It has 4 C hidden channels. swiglu has 8/3 C, and as many for its gate: the number of parameters is the same.
    """

    def __init__(self, name: str, width: int, *, bias: bool, dropout: float):
        super().__init__()
        hidden_size, n_inputs = (8 * width // 3, 2) if name == "swiglu" else (4 * width, 1)
        self.up = nn.Linear(width, n_inputs * hidden_size, bias=bias)
        self.proj = nn.Linear(hidden_size, width, bias=bias)
        self.activate, self.dropout = NONLINEARITIES[name], dropout

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.activate(self.up(x))  # (B, T, 4 C), or (B, T, 8/3 C)
        return dropout(self.proj(hidden), self.dropout, training=self.training)  # (B, T, C)
