"""The blocks of an encoder and of a decoder (Vaswani et al., 2017, section 3.1), with each norm before its layer."""

import copy

from torch import Tensor, nn

from model.scoring import Score, scaled_dot
from model.textbook.multi_head import MultiHeadAttention


class EncoderBlock(nn.Module):
    """Self-attention over all positions, then an MLP; each normalises its input and is added to x."""

    def __init__(self, width: int, n_head: int, *, dropout: float = 0.0, score: Score = scaled_dot):
        super().__init__()
        self.attention_norm, self.attention = nn.LayerNorm(width), _make_attention(width, n_head, dropout, score)
        self.mlp_norm, self.mlp = nn.LayerNorm(width), _make_mlp(width, dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, **masks: Tensor | None) -> Tensor:
        """Map x (B, S, C) to (B, S, C). masks: padding_mask (B, S), attention_mask (S, S), 0 where a key is hidden."""
        x = x + self.dropout(self.attention(self.attention_norm(x), **masks))
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
        memory: Tensor,
        *,
        memory_padding_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        **masks: Tensor | None,
    ) -> Tensor:
        """Map x (B, T, C) to (B, T, C), reading a memory (B, S, C).

        Masks are 0 where a key is hidden: padding_mask (B, T) and attention_mask (T, T) in self-attention,
        memory_padding_mask (B, S) and memory_mask (T, S) in cross-attention.
        """
        x = x + self.dropout(self.attention(self.attention_norm(x), causal=True, **masks))
        y = self.cross_attention(self.cross_norm(x), memory, padding_mask=memory_padding_mask, memory_mask=memory_mask)
        x = x + self.dropout(y)
        return x + self.dropout(self.mlp(self.mlp_norm(x)))


def _make_attention(width: int, n_head: int, dropout: float, score: Score) -> MultiHeadAttention:
    score = copy.deepcopy(score)
    return MultiHeadAttention(width, n_head, bias=True, output_bias=True, score=score, dropout=dropout)


def _make_mlp(width: int, dropout: float) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(dropout), nn.Linear(4 * width, width))
