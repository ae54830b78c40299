"""An encoder, and a decoder that reads the encoder's output through cross-attention (Vaswani et al., 2017)."""

from typing import cast

import torch
from torch import Tensor, nn

from model.scoring import Score, scaled_dot
from model.textbook.encoder_decoder_blocks import DecoderBlock, EncoderBlock


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
        encoded = self.encode(source, padding_mask=source_padding_mask, attention_mask=source_attention_mask)
        return self.decode(
            target,
            [block.read(encoded) for block in self.decoder],
            padding_mask=target_padding_mask,
            attention_mask=target_attention_mask,
            memory_padding_mask=source_padding_mask,
            memory_mask=memory_mask,
        )

    def encode(
        self, source: Tensor, *, padding_mask: Tensor | None = None, attention_mask: Tensor | None = None
    ) -> Tensor:
        """Return the memory (B, S, C) of source (B, S). Masks: see `EncoderBlock`."""
        x = self._embed(source, 0)
        for block in self.encoder:
            x = block(x, padding_mask=padding_mask, attention_mask=attention_mask)
        return self.encoder_norm(x)

    def decode(
        self,
        target: Tensor,
        memory: list[tuple[Tensor, Tensor]],
        *,
        pasts: list[list[Tensor]] | None = None,
        padding_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        memory_padding_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
    ) -> Tensor:
        """Return logits (B, T, V) for target (B, T), which continues the positions in pasts.

        memory contains the keys and values of the memory for each block, pasts a list for each block. Lists and masks:
        see `DecoderBlock`.
        """
        pasts = pasts or [[] for _ in self.decoder]
        x = self._embed(target, pasts[0][0].size(2) if pasts[0] else 0)
        for block, read, past in zip(self.decoder, memory, pasts, strict=True):
            x = block(
                x,
                read,
                past=past,
                padding_mask=padding_mask,
                attention_mask=attention_mask,
                memory_padding_mask=memory_padding_mask,
                memory_mask=memory_mask,
            )
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
        """Return the ids (B, length) that follow `start`, each the likeliest given source (B, S) and those before it.

        Keys and values of the memory are computed once, those of the target once for each position.
        """
        encoded = self.encode(source, padding_mask=source_padding_mask, attention_mask=source_attention_mask)
        memory = [block.read(encoded) for block in self.decoder]
        pasts: list[list[Tensor]] = [[] for _ in self.decoder]
        ids = [source.new_full((len(source), 1), start)]
        for _ in range(length):
            logits = self.decode(ids[-1], memory, pasts=pasts, memory_padding_mask=source_padding_mask)  # (B, 1, V)
            ids.append(logits.argmax(-1))
        return torch.cat(ids[1:], dim=1)

    def _embed(self, ids: Tensor, start: int) -> Tensor:
        if ids.ndim != 2:
            raise ValueError(f"source or target has shape {tuple(ids.shape)}; expected (B, length)")
        end, block_size = start + ids.size(1), self.position_embedding.num_embeddings
        if end > block_size:
            raise ValueError(f"{end} positions do not fit into block_size={block_size}")
        return self.dropout(self.token_embedding(ids) + self.position_embedding.weight[start:end])  # (B, length, C)
