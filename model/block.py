"""A transformer block: attention mixes positions, and the MLP transforms each position."""

from torch import Tensor, nn

from model.cache import LayerCache
from model.causal_conv import CausalConv
from model.config import LayerShape, ModelConfig
from model.mlp import MLP
from model.norm import make_norm
from model.positions import Places
from model.self_attention import SelfAttention


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)): pre-norm, as in GPT-2 (Radford et al., 2019).

        x ──┬── norm ── attention ── + ──┬── norm ── (conv) ── mlp ── + ──
            └────────────────────────┘   └────────────────────────────┘

    With `model.conv_width` above 1, a convolution lets the MLP also read the positions just before.
    """

    def __init__(self, config: ModelConfig, layer: LayerShape):
        super().__init__()
        self.attention_norm = make_norm(config.norm, config.n_embd, bias=config.bias)
        self.attention = SelfAttention(config, layer)
        self.mlp_norm = make_norm(config.norm, config.n_embd, bias=config.bias)
        self.conv = CausalConv(config.n_embd, config.conv_width) if config.conv_width > 1 else None
        self.mlp = MLP(config.mlp, config.n_embd, bias=config.bias, dropout=config.dropout)

    def forward(self, x: Tensor, places: Places, cache: LayerCache | None = None) -> Tensor:
        """Map x (B, T, C) to (B, T, C). Other arguments: see `SelfAttention.forward`."""
        x = x + self.attention(self.attention_norm(x), places, cache)
        y = self.mlp_norm(x)
        if self.conv is not None:
            y = self.conv(y, places, cache)
        return x + self.mlp(y)
