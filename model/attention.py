"""Causal self-attention: one head as the textbook has it, then all heads of a layer computed together."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.cache import LayerCache
from model.config import ModelConfig
from model.positions import rotate

# Number of keys above which a CPU is no longer faster with the explicit form's T x S weights in memory.
LONGEST_EXPLICIT = 512


def causal_mask(T: int, S: int, device: torch.device | None = None) -> Tensor:
    """Lower-triangular (T, S) mask, True where a query may look: the last T of S positions each see their past."""
    return torch.ones(T, S, dtype=torch.bool, device=device).tril(diagonal=S - T)


def attend(q: Tensor, k: Tensor, v: Tensor, *, visible: Tensor | None = None, dropout: float = 0.0) -> Tensor:
    """Scaled dot-product attention, softmax(q k^T / sqrt(D)) v ("Attention Is All You Need", 2017, eq. 1).

    q (..., T, D), k (..., S, D), v (..., S, D'), visible (T, S), False or 0 where a key is hidden -> (..., T, D').
    Dropout is applied to the weights, with that probability. This form is the specification; the fused one equals it.
    """
    scores = (q * q.size(-1) ** -0.5) @ k.transpose(-2, -1)  # (..., T, S)
    if visible is not None:
        scores = scores.masked_fill(visible == 0, float("-inf"))
    weights = F.softmax(scores, dim=-1)
    weights = F.dropout(weights, dropout)
    return weights @ v


def attend_fused(q: Tensor, k: Tensor, v: Tensor, *, dropout: float = 0.0) -> Tensor:
    """The causal case of `attend` in PyTorch's fused kernels, which never hold the T x S weights."""
    T, S = q.size(-2), k.size(-2)
    if T == 1:  # one query at the end sees everything
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout)
    if T == S:
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=causal_mask(T, S, q.device), dropout_p=dropout)


def choose_form(wanted: str, q: Tensor, k: Tensor, *, dropout: float = 0.0) -> str:
    """The form of attention to compute, "explicit" or "fused"; `auto` goes by what was measured.

    The fused kernels are the faster ones but for two cases on a CPU: their backward pass in bfloat16 costs 2 to 4 times
    as much at short lengths, and with dropout they have no fast path at all.
    """
    if wanted != "auto":
        return wanted
    if q.device.type != "cpu":
        return "fused"
    slow_backward = q.requires_grad and q.dtype == torch.bfloat16 and k.size(-2) <= LONGEST_EXPLICIT
    return "explicit" if slow_backward or dropout else "fused"


class Head(nn.Module):
    """One head of causal self-attention: (B, T, C) -> (B, T, D).

    The textbook statement of what each head of `CausalSelfAttention` does; nothing in the GPT runs it.
    """

    def __init__(self, n_embd: int, head_size: int, block_size: int, *, dropout: float = 0.0, bias: bool = False):
        super().__init__()
        self.query = nn.Linear(n_embd, head_size, bias=bias)
        self.key = nn.Linear(n_embd, head_size, bias=bias)
        self.value = nn.Linear(n_embd, head_size, bias=bias)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("tril", torch.tril(torch.ones(block_size, block_size)), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        T = x.size(1)
        q, k, v = self.query(x), self.key(x), self.value(x)  # (B, T, D) each
        scores = q @ k.transpose(-2, -1) * k.size(-1) ** -0.5  # (B, T, T)
        scores = scores.masked_fill(self.tril[:T, :T] == 0, float("-inf"))
        weights = self.dropout(F.softmax(scores, dim=-1))
        return weights @ v  # (B, T, D)


class CausalSelfAttention(nn.Module):
    """All heads of a layer together, with one output map: (B, T, C) -> (B, T, C)."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.n_head, self.head_size = config.n_head, config.size_per_head
        self.qk_norm, self.dropout, self.form = config.qk_norm, config.dropout, config.attention
        width = self.n_head * self.head_size
        self.qkv = nn.Linear(config.n_embd, 3 * width, bias=config.bias)
        self.proj = nn.Linear(width, config.n_embd, bias=config.bias)
        self.proj_dropout = nn.Dropout(config.dropout)

    def forward(
        self, x: Tensor, rotation: tuple[Tensor, Tensor] | None = None, cache: LayerCache | None = None
    ) -> Tensor:
        """Attention of x (B, T, C) to itself and, with a cache, to everything the cache holds before it.

        rotation: cosines and sines (T, 1, D/2) of x's positions, or None where positions are part of x already.
        """
        B, T, _ = x.shape
        H, D = self.n_head, self.head_size
        qk, v = self.qkv(x).view(B, T, 3 * H, D).split((2 * H, H), dim=2)  # (B, T, 2H, D), (B, T, H, D)
        if self.qk_norm:
            qk = F.rms_norm(qk, (D,))
        if rotation is not None:
            qk = rotate(qk, *rotation)
        q, k, v = (t.transpose(1, 2) for t in (*qk.chunk(2, dim=2), v))  # (B, H, T, D) each
        if cache is not None:
            k, v = cache.append(k, v)  # (B, H, S, D), S = positions so far
        dropout = self.dropout if self.training else 0.0
        if choose_form(self.form, q, k, dropout=dropout) == "fused":
            y = attend_fused(q, k, v, dropout=dropout)
        else:
            y = attend(q, k, v, visible=causal_mask(T, k.size(2), x.device), dropout=dropout)
        y = y.transpose(1, 2).reshape(B, T, H * D)  # heads side by side
        return self.proj_dropout(self.proj(y))
