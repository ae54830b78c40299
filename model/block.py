"""A transformer block: attention mixes positions, the MLP works on each position alone."""

import torch.nn.functional as F
from torch import Tensor, nn

from model.cache import LayerCache
from model.config import ModelConfig
from model.self_attention import SelfAttention


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2)) over the channels, without parameters (Zhang and Sennrich, 2019)."""

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (x.size(-1),))


def make_norm(config: ModelConfig) -> nn.Module:
    return RMSNorm() if config.norm == "rms" else nn.LayerNorm(config.n_embd, bias=config.bias)


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
        self.proj_dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = self.up(x)
        if self.kind == "relu2":
            x = F.relu(x).square()
        elif self.kind == "gelu":
            x = F.gelu(x)
        else:
            gate, x = x.chunk(2, dim=-1)
            x = F.silu(gate) * x
        return self.proj_dropout(self.proj(x))


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
