"""The MLP (feed-forward network) of a block transforms each position alone: one class for each nonlinearity."""

from abc import ABC, abstractmethod

import torch.nn.functional as F
from torch import Tensor, nn

from model.dropout import dropout
from model.kernels import hand_written


class MLP(nn.Module, ABC):
    """Two linear maps with a nonlinearity between them: (B, T, C) -> (B, T, C)."""

    def __init__(self, width: int, *, bias: bool, dropout: float):
        super().__init__()
        up_size, hidden_size = self.sizes(width)
        self.up = nn.Linear(width, up_size, bias=bias)
        self.proj = nn.Linear(hidden_size, width, bias=bias)
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        return dropout(self.proj(self.activate(self.up(x))), self.dropout, training=self.training)

    @staticmethod
    def sizes(width: int) -> tuple[int, int]:
        """Return the number of channels before the nonlinearity (those of `up`) and after it."""
        return 4 * width, 4 * width

    @abstractmethod
    def activate(self, x: Tensor) -> Tensor:
        """Apply the nonlinearity to the output of `up`."""


class SquaredReLU(MLP):
    """max(x, 0)^2 (So et al., 2021)."""

    def activate(self, x: Tensor) -> Tensor:
        return hand_written.squared_relu(x) if hand_written.is_faster(x) else F.relu(x).square()


class GELU(MLP):
    """x times the standard normal cumulative distribution at x (Hendrycks and Gimpel, 2016)."""

    def activate(self, x: Tensor) -> Tensor:
        return F.gelu(x)


class SwiGLU(MLP):
    """silu(gate) * x (Shazeer, 2020), 8/3 C wide instead of 4 C, which keeps the number of parameters the same."""

    @staticmethod
    def sizes(width: int) -> tuple[int, int]:
        hidden_size = 8 * width // 3
        return 2 * hidden_size, hidden_size

    def activate(self, x: Tensor) -> Tensor:
        gate, x = x.chunk(2, dim=-1)
        return F.silu(gate) * x


MLPS: dict[str, type[MLP]] = {"relu2": SquaredReLU, "gelu": GELU, "swiglu": SwiGLU}  # by the names of `model.mlp`
