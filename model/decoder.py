"""An encoder and a decoder that reads it through cross-attention, built from the GPT's own blocks."""

import torch
from torch import Tensor, nn

from model.attention import MultiHeadAttention
from model.block import MLP, Block
from model.cache import KVCache, LayerCache
from model.config import ModelConfig
from model.norm import make_norm
from model.self_attention import SelfAttention


class DecoderBlock(nn.Module):
    """Causal self-attention, cross-attention to a memory, MLP, each added to x ("Attention Is All You Need", 3.1)."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.attention_norm = make_norm(config)
        self.attention = SelfAttention(config)
        self.memory_norm = make_norm(config)
        self.memory_attention = MultiHeadAttention(
            config.n_embd, config.n_head, head_size=config.head_size, bias=config.bias, dropout=config.dropout
        )
        self.mlp_norm = make_norm(config)
        self.mlp = MLP(config)

    def forward(
        self,
        x: Tensor,
        memory: tuple[Tensor, Tensor],
        cache: LayerCache | None = None,
        *,
        padding_mask: Tensor | None = None,
        memory_padding_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
    ) -> Tensor:
        """x (B, T, C) -> (B, T, C).

        memory: its keys and values (B, H, S, D) for this block, see `read`. padding_mask (B, T) and memory_padding_mask
        (B, S) hide positions that are none; memory_mask (T, S) hides positions of the memory from a query.
        """
        x = x + self.attention(self.attention_norm(x), cache=cache, padding_mask=padding_mask)
        q = self.memory_attention.queries(self.memory_norm(x))
        x = x + self.memory_attention.attend_to(q, *memory, padding_mask=memory_padding_mask, memory_mask=memory_mask)
        return x + self.mlp(self.mlp_norm(x))

    def read(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of a memory (B, S, C): computed once, however many positions attend to it."""
        return self.memory_attention.keys_and_values(memory, memory)


class EncoderDecoder(nn.Module):
    """Sequences to sequences over one vocabulary, with learned positions on both sides."""

    def __init__(self, config: ModelConfig, vocab_size: int):
        super().__init__()
        if config.positions != "learned":
            raise ValueError(f"model.positions={config.positions}: an EncoderDecoder has learned positions")
        self.config = config
        self.token_embedding = nn.Embedding(vocab_size, config.n_embd)
        self.position_embedding = nn.Embedding(config.block_size, config.n_embd)
        layers = [config.layer(i) for i in range(config.n_layer)]
        self.encoder = nn.ModuleList(Block(layer, causal=False) for layer in layers)
        self.encoder_norm = make_norm(config)
        self.decoder = nn.ModuleList(DecoderBlock(layer) for layer in layers)
        self.decoder_norm = make_norm(config)
        self.head = nn.Linear(config.n_embd, vocab_size, bias=False)

    def forward(self, source: Tensor, target: Tensor, *, source_mask: Tensor | None = None) -> Tensor:
        """Logits (B, T, V) of what follows each position of target (B, T), given source (B, S).

        source_mask: (B, S), 0 where a position of the source is padding.
        """
        memory = self.encode(source, source_mask=source_mask)
        return self.decode(target, [block.read(memory) for block in self.decoder], source_mask=source_mask)

    def encode(self, source: Tensor, *, source_mask: Tensor | None = None) -> Tensor:
        """The memory (B, S, C) of source (B, S)."""
        x = self._embed(source, 0)
        for block in self.encoder:
            x = block(x, padding_mask=source_mask)
        return self.encoder_norm(x)

    def decode(
        self,
        target: Tensor,
        memory: list[tuple[Tensor, Tensor]],
        cache: KVCache | None = None,
        *,
        source_mask: Tensor | None = None,
    ) -> Tensor:
        """Logits (B, T, V) for target (B, T), which with a cache continues the positions that it holds."""
        x = self._embed(target, cache.length if cache else 0)
        for i, block in enumerate(self.decoder):
            x = block(x, memory[i], cache.layers[i] if cache else None, memory_padding_mask=source_mask)
        return self.head(self.decoder_norm(x)).float()

    @torch.inference_mode()
    def greedy(
        self, source: Tensor, start: int, length: int, *, source_mask: Tensor | None = None, use_cache: bool = True
    ) -> Tensor:
        """The likeliest continuation of `start`, character by character: ids (B, length)."""
        encoded = self.encode(source, source_mask=source_mask)
        memory = [block.read(encoded) for block in self.decoder]
        cache = KVCache(self.config, len(source), dtype=encoded.dtype, device=source.device) if use_cache else None
        ids = source.new_full((len(source), 1), start)
        for _ in range(length):
            logits = self.decode(ids[:, -1:] if use_cache else ids, memory, cache, source_mask=source_mask)
            ids = torch.cat((ids, logits[:, -1:].argmax(-1)), dim=1)
        return ids[:, 1:]

    def _embed(self, ids: Tensor, start: int) -> Tensor:
        if ids.ndim != 2:
            raise ValueError(f"source or target has shape {tuple(ids.shape)}; expected (B, length)")
        end = start + ids.size(1)
        if end > self.config.block_size:
            raise ValueError(f"{end} positions do not fit into model.block_size={self.config.block_size}")
        return self.token_embedding(ids) + self.position_embedding.weight[start:end]
