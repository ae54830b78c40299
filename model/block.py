"""A transformer block: attention mixes positions, and the MLP (feed-forward network) transforms each position."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.attention import SelfAttention
from model.cache import LayerCache
from model.config import LayerShape, ModelConfig
from model.norm import make_norm
from model.positions import Places


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)): pre-norm, as in GPT-2 (Radford et al., 2019).

        x ──┬── norm ── attention ── + ──┬── norm ── (conv) ── mlp ── + ──
            └────────────────────────┘   └────────────────────────────┘

    With `model.conv_width` above 1, a convolution lets the MLP also read the positions just before.
    """

    def __init__(self, config: ModelConfig, layer: LayerShape):
        super().__init__()
        self.attention_norm = make_norm(config)
        self.attention = SelfAttention(config, layer)
        self.mlp_norm = make_norm(config)
        self.conv = CausalConv(config.n_embd, config.conv_width) if config.conv_width > 1 else None
        self.mlp = MLP(config.mlp, config.n_embd, bias=config.bias, dropout=config.dropout)

    def forward(self, x: Tensor, places: Places, cache: LayerCache | None = None) -> Tensor:
        """Map x (B, T, C) to (B, T, C). Other arguments: see `SelfAttention.forward`."""
        x = x + self.attention(self.attention_norm(x), places, cache)
        y = self.mlp_norm(x)
        if self.conv is not None:
            y = self.conv(y, places, cache)
        return x + self.mlp(y)


class CausalConv(nn.Module):
    """y_t = x_t + w_1 x_(t-1) + ... + w_(W-1) x_(t-W+1), channel by channel: (B, T, C) -> (B, T, C).

    A depthwise convolution of width W along the text, as Primer applies to queries, keys and values (So et al., 2021).
    Positions before the start count as 0.
    """

    def __init__(self, n_embd: int, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width - 1, 1, n_embd))  # (W - 1, 1, C), w_1 first

    def forward(self, x: Tensor, places: Places, cache: LayerCache | None = None) -> Tensor:
        """Convolve x (B, T, C) at positions `places`, continuing the positions in the cache."""
        T, n_before = x.size(1), len(self.weight)
        # (B, W - 1 + T, C): the W - 1 inputs before, then x
        whole = F.pad(x, (0, 0, n_before, 0)) if cache is None else cache.inputs.update(x, places.index)
        y = x
        for back, w in enumerate(self.weight.to(x.dtype), start=1):
            y = torch.addcmul(y, whole[:, n_before - back : n_before - back + T], w)  # (B, T, C)
        return y


def squared_relu(x: Tensor) -> Tensor:
    """Return max(x, 0)^2 (So et al., 2021)."""
    y = F.relu(x)
    return y * y  # autocast would compute `square` in float32 on a GPU, and convert before and after it


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
        return F.dropout(self.proj(hidden), self.dropout, self.training)  # (B, T, C)
