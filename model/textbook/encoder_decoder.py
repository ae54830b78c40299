"""An encoder, and a decoder that reads it through cross-attention (Vaswani et al., 2017)."""

import copy

import torch
from torch import Tensor, nn

from model.scoring import Score, scaled_dot
from model.textbook.multi_head import MultiHeadAttention, combine_masks


class EncoderBlock(nn.Module):
    """Self-attention over all positions, then an MLP, each added to x and with its norm before it."""

    def __init__(self, width: int, n_head: int, *, dropout: float = 0.0, score: Score = scaled_dot):
        super().__init__()
        self.attention_norm, self.attention = nn.LayerNorm(width), _make_attention(width, n_head, dropout, score)
        self.mlp_norm, self.mlp = nn.LayerNorm(width), _make_mlp(width, dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, *, padding_mask: Tensor | None = None, attention_mask: Tensor | None = None) -> Tensor:
        """x (B, S, C) -> (B, S, C). padding_mask (B, S) and attention_mask (S, S): 0 where a key is hidden."""
        y = self.attention(self.attention_norm(x), padding_mask=padding_mask, attention_mask=attention_mask)
        x = x + self.dropout(y)
        return x + self.dropout(self.mlp(self.mlp_norm(x)))


class DecoderBlock(nn.Module):
    """Causal self-attention, cross-attention to a memory, then an MLP, each added to x with its norm before it."""

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
        """x (B, T, C) -> (B, T, C).

        memory: its keys and values for this block, from `read`. past: a list that holds the keys and values of the P
        positions before x and then also those of x; empty at the first. In self-attention, padding_mask (B, P + T) and
        attention_mask (T, P + T) hide keys; in cross-attention, memory_padding_mask (B, S) and memory_mask (T, S) do.
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
        """Return the keys and values (B, H, S, D) of a memory (B, S, C); computed once, they serve every position."""
        return self.cross_attention.map_keys_and_values(memory, memory)


class EncoderDecoder(nn.Module):
    """A model from sequences to sequences over one vocabulary, with learned positions on both sides.

    score is the attention scoring function; each attention gets a copy, so that an `Additive` score learns separate
    weights in each. The GPT's settings qk_norm and n_kv_head do not exist here.

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
        settings = {"dropout": dropout, "score": score}
        self.encoder = nn.ModuleList(EncoderBlock(width, n_head, **settings) for _ in range(n_layer))
        self.encoder_norm = nn.LayerNorm(width)
        self.decoder = nn.ModuleList(DecoderBlock(width, n_head, **settings) for _ in range(n_layer))
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
        """Return logits (B, T, V) for what follows each position of target (B, T), given source (B, S).

        Masks hold 0 where a key is hidden: source_padding_mask (B, S) in every attention to the source,
        source_attention_mask (S, S) in the encoder, target_padding_mask (B, T) and target_attention_mask (T, T) in the
        decoder's self-attention, memory_mask (T, S) in its cross-attention.

        Raises ValueError if a sequence is longer than block_size or a shape is wrong.
        """
        memory = self.encode(source, padding_mask=source_padding_mask, attention_mask=source_attention_mask)
        return self.decode(
            target,
            [block.read(memory) for block in self.decoder],
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
        **masks: Tensor | None,
    ) -> Tensor:
        """Return logits (B, T, V) for target (B, T), which continues the positions that pasts hold.

        memory: its keys and values for each block. pasts: a list for each block, see `DecoderBlock`, as are masks.
        """
        pasts = pasts or [[] for _ in self.decoder]
        x = self._embed(target, pasts[0][0].size(2) if pasts[0] else 0)
        for block, read, past in zip(self.decoder, memory, pasts, strict=True):
            x = block(x, read, past=past, **masks)
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
        memory, pasts = [block.read(encoded) for block in self.decoder], [[] for _ in self.decoder]
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


def _make_attention(width: int, n_head: int, dropout: float, score: Score) -> MultiHeadAttention:
    score = copy.deepcopy(score)
    return MultiHeadAttention(width, n_head, bias=True, output_bias=True, score=score, dropout=dropout)


def _make_mlp(width: int, dropout: float) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(dropout), nn.Linear(4 * width, width))
