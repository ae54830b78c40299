"""Chapter 5, continued: what does a layer need around it? A norm, an MLP, and sums that keep the input.

Each block normalises the input of its layers, as the GPT does, and not their results as Vaswani et al. (2017).

Next: `chapter5d_encoder_decoder.py` stacks these blocks.
"""

import copy

from torch import Tensor, nn

from model.mlp import MLP
from model.scoring import Score, scaled_dot
from model.textbook.chapter5a_masks import require_keywords
from model.textbook.chapter5b_layer import MultiHeadAttention


class EncoderBlock(nn.Module):
    """Self-attention over all positions, then an MLP; each normalises its input and is added to x."""

    def __init__(self, width: int, n_head: int, *, dropout: float = 0.0, score: Score = scaled_dot):
        super().__init__()
        self.attention_norm, self.attention = nn.LayerNorm(width), _make_attention(width, n_head, dropout, score)
        self.mlp_norm, self.mlp = nn.LayerNorm(width), MLP("gelu", width, bias=True, dropout=dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, *misplaced: Tensor, **masks: Tensor | None) -> Tensor:
        """Map x (B, S, C) to (B, S, C). masks: padding_mask (B, S), attention_mask (S, S), 0 where a key is hidden."""
        require_keywords(misplaced, "padding_mask", "attention_mask")
        x = x + self.dropout(self.attention(self.attention_norm(x), **masks))
        return x + self.mlp(self.mlp_norm(x))


class DecoderBlock(EncoderBlock):
    """Causal self-attention, cross-attention to the encoder's output (memory), then an MLP, around sums as above."""

    def __init__(self, width: int, n_head: int, *, dropout: float = 0.0, score: Score = scaled_dot):
        super().__init__(width, n_head, dropout=dropout, score=score)
        self.cross_norm, self.cross_attention = nn.LayerNorm(width), _make_attention(width, n_head, dropout, score)

    def forward(  # type: ignore[override] # it also reads a memory
        self,
        x: Tensor,
        memory: Tensor,
        *misplaced: Tensor,
        memory_padding_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        **masks: Tensor | None,
    ) -> Tensor:
        """Map x (B, T, C) to (B, T, C), reading a memory (B, S, C).

        Masks are 0 where a key is hidden: padding_mask (B, T) and attention_mask (T, T) in self-attention,
        memory_padding_mask (B, S) and memory_mask (T, S) in cross-attention.
        """
        require_keywords(misplaced, "padding_mask", "attention_mask", "memory_padding_mask", "memory_mask")
        x = x + self.dropout(self.attention(self.attention_norm(x), causal=True, **masks))
        y = self.cross_attention(self.cross_norm(x), memory, padding_mask=memory_padding_mask, memory_mask=memory_mask)
        x = x + self.dropout(y)
        return x + self.mlp(self.mlp_norm(x))


def _make_attention(width: int, n_head: int, dropout: float, score: Score) -> MultiHeadAttention:
    score = copy.deepcopy(score)
    return MultiHeadAttention(width, n_head, bias=True, output_bias=True, score=score, dropout=dropout)
