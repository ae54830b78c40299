"""An encoder, and a decoder that reads the encoder's output through cross-attention (Vaswani et al., 2017).

Each block normalises the input of its layers, as the GPT does, and not their results as in the paper.
"""

import copy
from typing import cast

import torch
from torch import Tensor, nn

from model.mlp import GELU
from model.scoring import Score, scaled_dot
from model.textbook.multi_head import MultiHeadAttention


class EncoderBlock(nn.Module):
    """Self-attention over all positions, then an MLP; each normalises its input and is added to x."""

    def __init__(self, width: int, n_head: int, *, dropout: float = 0.0, score: Score = scaled_dot):
        super().__init__()
        self.attention_norm, self.attention = nn.LayerNorm(width), _make_attention(width, n_head, dropout, score)
        self.mlp_norm, self.mlp = nn.LayerNorm(width), GELU(width, bias=True, dropout=dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, **masks: Tensor | None) -> Tensor:
        """Map x (B, S, C) to (B, S, C). masks: padding_mask (B, S), attention_mask (S, S), 0 where a key is hidden."""
        x = x + self.dropout(self.attention(self.attention_norm(x), **masks))
        return x + self.mlp(self.mlp_norm(x))


class DecoderBlock(nn.Module):
    """Causal self-attention, cross-attention to a memory, then an MLP; each normalises its input and is added to x."""

    def __init__(self, width: int, n_head: int, *, dropout: float = 0.0, score: Score = scaled_dot):
        super().__init__()
        self.attention_norm, self.attention = nn.LayerNorm(width), _make_attention(width, n_head, dropout, score)
        self.cross_norm, self.cross_attention = nn.LayerNorm(width), _make_attention(width, n_head, dropout, score)
        self.mlp_norm, self.mlp = nn.LayerNorm(width), GELU(width, bias=True, dropout=dropout)
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
        return x + self.mlp(self.mlp_norm(x))


def _make_attention(width: int, n_head: int, dropout: float, score: Score) -> MultiHeadAttention:
    score = copy.deepcopy(score)
    return MultiHeadAttention(width, n_head, bias=True, output_bias=True, score=score, dropout=dropout)


class EncoderDecoder(nn.Module):
    """A sequence-to-sequence model over one vocabulary, with learned positions on both sides.

    score is the attention scoring function; each attention layer gets a copy, so that an `Additive` score learns
    separate weights in each. Unlike the GPT, this model has neither qk_norm nor n_kv_head.

    Raises ValueError if n_head does not divide width.
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        width: int,
        n_head: int,
        n_layer: int,
        block_size: int,
        dropout: float = 0.0,
        score: Score = scaled_dot,
    ):
        super().__init__()
        self.token_embedding = nn.Embedding(vocab_size, width)
        self.position_embedding = nn.Embedding(block_size, width)
        self.dropout = nn.Dropout(dropout)
        encoder = (EncoderBlock(width, n_head, dropout=dropout, score=score) for _ in range(n_layer))
        decoder = (DecoderBlock(width, n_head, dropout=dropout, score=score) for _ in range(n_layer))
        # Type checkers do not know what a ModuleList holds.
        self.encoder = cast("list[EncoderBlock]", nn.ModuleList(encoder))
        self.encoder_norm = nn.LayerNorm(width)
        self.decoder = cast("list[DecoderBlock]", nn.ModuleList(decoder))
        self.decoder_norm = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocab_size, bias=False)

    def forward(
        self,
        source: Tensor,
        target: Tensor,
        *,
        source_padding_mask: Tensor | None = None,
        source_attention_mask: Tensor | None = None,
        target_padding_mask: Tensor | None = None,
        target_attention_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
    ) -> Tensor:
        """Return logits (B, T, V) for the id after each position of target (B, T), given source (B, S).

        Masks are 0 where a key is hidden: source_padding_mask (B, S) in every attention to the source,
        source_attention_mask (S, S) in the encoder, target_padding_mask (B, T) and target_attention_mask (T, T) in the
        decoder's self-attention, memory_mask (T, S) in its cross-attention.

        Raises ValueError if a sequence is longer than block_size or a shape is wrong.
        """
        memory = self.encode(source, padding_mask=source_padding_mask, attention_mask=source_attention_mask)
        return self.decode(
            target,
            memory,
            padding_mask=target_padding_mask,
            attention_mask=target_attention_mask,
            memory_padding_mask=source_padding_mask,
            memory_mask=memory_mask,
        )

    def encode(self, source: Tensor, **masks: Tensor | None) -> Tensor:
        """Return the memory (B, S, C) of source (B, S). masks: see `EncoderBlock`."""
        x = self._embed(source)
        for block in self.encoder:
            x = block(x, **masks)
        return self.encoder_norm(x)

    def decode(self, target: Tensor, memory: Tensor, **masks: Tensor | None) -> Tensor:
        """Return logits (B, T, V) for target (B, T), given a memory (B, S, C). masks: see `DecoderBlock`."""
        x = self._embed(target)
        for block in self.decoder:
            x = block(x, memory, **masks)
        return self.lm_head(self.decoder_norm(x))

    @torch.inference_mode()
    def greedy(
        self,
        source: Tensor,
        start: int,
        length: int,
        *,
        source_padding_mask: Tensor | None = None,
        source_attention_mask: Tensor | None = None,
    ) -> Tensor:
        """Return the ids (B, length) after `start`, each the likeliest given source (B, S) and those before it."""
        memory = self.encode(source, padding_mask=source_padding_mask, attention_mask=source_attention_mask)
        ids = source.new_full((len(source), 1), start)
        for _ in range(length):
            logits = self.decode(ids, memory, memory_padding_mask=source_padding_mask)  # (B, T, V)
            ids = torch.cat((ids, logits[:, -1:].argmax(-1)), dim=1)
        return ids[:, 1:]

    def _embed(self, ids: Tensor) -> Tensor:
        if ids.ndim != 2:
            raise ValueError(f"source or target has shape {tuple(ids.shape)}; expected (B, length)")
        n, block_size = ids.size(1), self.position_embedding.num_embeddings
        if n > block_size:
            raise ValueError(f"{n} positions do not fit into block_size={block_size}")
        return self.dropout(self.token_embedding(ids) + self.position_embedding.weight[:n])  # (B, length, C)
