"""Chapter 5, continued: what is cross-attention for? To write one sequence while reading another, as in translation.

The encoder reads the source; the decoder writes the target and looks up, at each step, what it needs in the source.
Reversing a string is the smallest such task: position t of the target needs one position of the source, and the model
must find out which. `python -m experiments.textbook reversal` trains it in half a minute.

Next: `chapter6a_scores.py` compares queries and keys in other ways.
"""

from typing import Any

import torch
from torch import Tensor, nn

from model.textbook.chapter5a_masks import require_keywords
from model.textbook.chapter5c_blocks import DecoderBlock, EncoderBlock

TARGET_MASKS = ("padding_mask", "attention_mask", "memory_mask")


class EncoderDecoder(nn.Module):
    """A sequence-to-sequence model over one vocabulary, with learned positions on both sides, which give order.

    of_blocks: dropout and score, of which each attention layer has a copy.
    """

    def __init__(self, vocab_size: int, *, width: int, n_head: int, n_layer: int, block_size: int, **of_blocks: Any):
        super().__init__()
        self.token_embedding = nn.Embedding(vocab_size, width)
        self.position_embedding = nn.Embedding(block_size, width)
        self.dropout = nn.Dropout(of_blocks.get("dropout", 0.0))
        self.encoder = nn.ModuleList(EncoderBlock(width, n_head, **of_blocks) for _ in range(n_layer))
        self.decoder = nn.ModuleList(DecoderBlock(width, n_head, **of_blocks) for _ in range(n_layer))
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocab_size, bias=False)

    def forward(self, source: Tensor, target: Tensor, *misplaced: Tensor, **masks: Tensor | None) -> Tensor:
        """Return scores (logits) (B, T, V) for the id after each position of target (B, T), given source (B, S).

        Masks are 0 where a key is hidden: source_padding_mask (B, S) in every attention to the source,
        source_attention_mask (S, S) in the encoder, padding_mask (B, T) and attention_mask (T, T) in the decoder's
        self-attention, memory_mask (T, S) in its cross-attention. Raises ValueError if a shape is wrong.
        """
        require_keywords(misplaced, "source_padding_mask", "source_attention_mask", *TARGET_MASKS)
        padding_mask, attention_mask = masks.pop("source_padding_mask", None), masks.pop("source_attention_mask", None)
        memory = self.encode(source, padding_mask=padding_mask, attention_mask=attention_mask)
        return self.decode(target, memory, memory_padding_mask=padding_mask, **masks)

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
    def greedy(self, source: Tensor, start: int, length: int, **masks: Tensor | None) -> Tensor:
        """Return the likeliest ids (B, length) after `start`, one by one. masks: those of source and memory."""
        memory_mask = masks.pop("memory_mask", None)
        ids = source.new_full((len(source), 1), start)
        for t in range(1, length + 1):
            rows = None if memory_mask is None else memory_mask[:t]
            logits = self(source, ids, memory_mask=rows, **masks)  # (B, t, V); a cache would be faster, and longer
            ids = torch.cat((ids, logits[:, -1:].argmax(-1)), dim=1)
        return ids[:, 1:]

    def _embed(self, ids: Tensor) -> Tensor:
        block_size = self.position_embedding.num_embeddings
        if ids.ndim != 2 or ids.size(1) > block_size:
            raise ValueError(f"ids have shape {tuple(ids.shape)}; expected (B, length), length at most {block_size}")
        return self.dropout(self.token_embedding(ids) + self.position_embedding.weight[: ids.size(1)])
