"""A transformer block: attention mixes positions, the MLP works on each position alone."""

import torch.nn.functional as F
from torch import Tensor, nn

from model import by_hand
from model.cache import LayerCache
from model.config import ModelConfig
from model.dropout import Dropout
from model.norm import make_norm
from model.self_attention import SelfAttention


class MLP(nn.Module):
    """Two linear maps with a nonlinearity between them: (B, T, C) -> (B, T, C).

    relu2: max(x, 0)^2 (So et al., 2021). gelu: Hendrycks and Gimpel, 2016. swiglu: silu(gate) * up (Shazeer, 2020),
    with a hidden width of 8/3 C in place of 4 C, so that all three have about the same number of parameters.
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.kind = config.mlp
        C = config.n_embd
        hidden = 8 * C // 3 if self.kind == "swiglu" else 4 * C
        self.up = nn.Linear(C, 2 * hidden if self.kind == "swiglu" else hidden, bias=config.bias)
        self.proj = nn.Linear(hidden, C, bias=config.bias)
        self.proj_dropout = Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj_dropout(self.proj(self.activate(self.up(x))))

    def activate(self, x: Tensor) -> Tensor:
        """The nonlinearity: what `up` gives -> (..., hidden)."""
        if self.kind == "relu2":
            return by_hand.SquaredReLU.apply(x) if by_hand.worthwhile(x) else F.relu(x).square()
        if self.kind == "gelu":
            return F.gelu(x)
        gate, x = x.chunk(2, dim=-1)
        return F.silu(gate) * x


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)): pre-norm, as in GPT-2.

    causal: each position sees its past alone, as in a GPT; otherwise all positions see all, as in an encoder.
    """

    def __init__(self, config: ModelConfig, *, causal: bool = True):
        super().__init__()
        self.attention_norm = make_norm(config)
        self.attention = SelfAttention(config, causal=causal)
        self.mlp_norm = make_norm(config)
        self.mlp = MLP(config)

    def forward(
        self,
        x: Tensor,
        rotation: tuple[Tensor, Tensor] | None = None,
        cache: LayerCache | None = None,
        *,
        padding_mask: Tensor | None = None,
    ) -> Tensor:
        """x (B, T, C) -> (B, T, C). rotation, cache, padding_mask: see `SelfAttention`."""
        x = x + self.attention(self.attention_norm(x), rotation, cache, padding_mask=padding_mask)
        return x + self.mlp(self.mlp_norm(x))
