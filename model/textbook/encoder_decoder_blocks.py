"""The blocks of an encoder and of a decoder (Vaswani et al., 2017, section 3.1), with each norm before its layer."""

import copy

import torch
from torch import Tensor, nn

from model.scoring import Score, scaled_dot
from model.textbook.multi_head import MultiHeadAttention, combine_masks


class EncoderBlock(nn.Module):
    """Self-attention over all positions, then an MLP; each normalises its input and is added to x."""

    def __init__(self, width: int, n_head: int, *, dropout: float = 0.0, score: Score = scaled_dot):
        super().__init__()
        self.attention_norm, self.attention = nn.LayerNorm(width), _make_attention(width, n_head, dropout, score)
        self.mlp_norm, self.mlp = nn.LayerNorm(width), _make_mlp(width, dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, *, padding_mask: Tensor | None = None, attention_mask: Tensor | None = None) -> Tensor:
        """Map x (B, S, C) to (B, S, C). padding_mask (B, S) and attention_mask (S, S): 0 where a key is hidden."""
        y = self.attention(self.attention_norm(x), padding_mask=padding_mask, attention_mask=attention_mask)
        x = x + self.dropout(y)
        return x + self.dropout(self.mlp(self.mlp_norm(x)))


class DecoderBlock(nn.Module):
    """Causal self-attention, cross-attention to a memory, then an MLP; each normalises its input and is added to x."""

    def __init__(self, width: int, n_head: int, *, dropout: float = 0.0, score: Score = scaled_dot):
        super().__init__()
        self.attention_norm, self.attention = nn.LayerNorm(width), _make_attention(width, n_head, dropout, score)
        self.cross_norm, self.cross_attention = nn.LayerNorm(width), _make_attention(width, n_head, dropout, score)
        self.mlp_norm, self.mlp = nn.LayerNorm(width), _make_mlp(width, dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        memory: tuple[Tensor, Tensor],
        *,
        past: list[Tensor] | None = None,
        padding_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        memory_padding_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
    ) -> Tensor:
        """Map x (B, T, C) to (B, T, C).

        memory holds the keys and values (B, H, S, D) that `read` returns. past holds the keys and values of the P
        positions before x, and this call adds those of x; it is an empty list before the first position.

        Masks are 0 where a key is hidden: padding_mask (B, P + T) and attention_mask (T, P + T) in self-attention,
        memory_padding_mask (B, S) and memory_mask (T, S) in cross-attention.
        """
        normed = self.attention_norm(x)
        q = self.attention.map_queries(normed)
        k, v = self.attention.map_keys_and_values(normed, normed)  # (B, H, T, D) each
        if past:
            k, v = torch.cat((past[0], k), dim=2), torch.cat((past[1], v), dim=2)  # (B, H, P + T, D) each
        if past is not None:
            past[:] = k, v
        visible = combine_masks(
            shape=(q.size(0), q.size(2), k.size(2)), padding_mask=padding_mask, attention_mask=attention_mask
        )
        x = x + self.dropout(self.attention.attend_to(q, k, v, visible=visible, causal=True))

        q, (k, v) = self.cross_attention.map_queries(self.cross_norm(x)), memory
        visible = combine_masks(
            shape=(q.size(0), q.size(2), k.size(2)), padding_mask=memory_padding_mask, memory_mask=memory_mask
        )
        x = x + self.dropout(self.cross_attention.attend_to(q, k, v, visible=visible))
        return x + self.dropout(self.mlp(self.mlp_norm(x)))

    def read(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values (B, H, S, D) of a memory (B, S, C), computed once for all positions."""
        return self.cross_attention.map_keys_and_values(memory, memory)


def _make_attention(width: int, n_head: int, dropout: float, score: Score) -> MultiHeadAttention:
    score = copy.deepcopy(score)
    return MultiHeadAttention(width, n_head, bias=True, output_bias=True, score=score, dropout=dropout)


def _make_mlp(width: int, dropout: float) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(dropout), nn.Linear(4 * width, width))
