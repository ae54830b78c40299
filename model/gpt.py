"""The GPT: it reads characters and predicts the next one at every position. README.md compares it with GPT-2."""

import math
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.block import Block, CausalConv
from model.cache import KVCache
from model.config import ModelConfig
from model.copy_memory import CopyMemory
from model.embedding import TokenEmbedding
from model.ngrams import NgramMemory
from model.norm import QueryKeyNorm, make_norm
from model.positions import POSITIONS, Places

INITIAL_QK_SCALE = 12.0  # of learned scales (experiments/studies/RECORDS.md)


class GPT(nn.Module):
    """A decoder-only transformer over `vocab_size` characters.

    `GPT(ids (B, T)) -> logits (B, T, V)`: logits[:, t] score the character that follows position t, computed from
    positions 0 to t. The caller computes the loss.
    """

    def __init__(self, config: ModelConfig, vocab_size: int):
        super().__init__()
        self.config, self.n_before = config, config.n_before
        self.token_embedding = TokenEmbedding(vocab_size, config.n_embd)
        self.memories = nn.ModuleDict()  # each maps the `Places` of a pass to vectors (B, T, C)
        if config.ngrams:
            self.memories["ngrams"] = NgramMemory(config, vocab_size)
        if config.longest_copy:
            self.memories["copies"] = CopyMemory(config, vocab_size)
        self.position_embedding = POSITIONS[config.positions](config)
        self.blocks = cast("list[Block]", nn.ModuleList(Block(config, layer) for layer in config.layers))
        self.norm = make_norm(config)
        self.lm_head = nn.Linear(config.n_embd, vocab_size, bias=False)
        self.init_weights()

    @torch.no_grad()
    def init_weights(self) -> None:
        """Initialise the weights. LayerNorms and the strengths of copies begin with ones, rows of n-grams with 0."""
        for module in self.modules():
            if isinstance(module, nn.Linear):  # keeps the variance of its input
                nn.init.normal_(module.weight, std=module.in_features**-0.5)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding) and not module.sparse:
                # The size of what the first blocks soon add; GPT-2's 0.02 would be lost in it.
                nn.init.normal_(module.weight, std=0.3)
            elif isinstance(module, QueryKeyNorm) and module.log_scale is not None:
                nn.init.constant_(module.log_scale, math.log(INITIAL_QK_SCALE))
            elif isinstance(module, CausalConv):  # begins as the identity
                nn.init.zeros_(module.weight)
        if "copies" in self.memories:  # they add nothing at first
            nn.init.zeros_(self.memories.get_parameter("copies.followers.weight"))
        for block in self.blocks:  # every block begins as the identity
            nn.init.zeros_(block.attention.proj.weight)
            nn.init.zeros_(block.mlp.proj.weight)
        nn.init.zeros_(self.lm_head.weight)  # all characters are equally likely: the loss begins at ln V

    def forward(self, ids: Tensor, cache: KVCache | None = None, weights: list[Tensor] | None = None) -> Tensor:
        """Return logits (B, T, V) for ids (B, T); with a cache, ids continue the positions in it.

        Logits are float32, or float64 for a float64 model. weights: a list that receives the attention weights
        (B, H, T, S) of each layer, without dropout. Raises ValueError if ids are not two-dimensional or the positions
        exceed block_size.
        """
        places = self.places(ids, cache, weights)
        x = self.position_embedding.embed(self.token_embedding(ids), places)  # (B, T, C)
        for memory in self.memories.values():
            x = x + memory(places)  # (B, T, C)
        x = F.dropout(x, self.config.dropout, self.training)
        for i, block in enumerate(self.blocks):
            x = block(x, places, None if cache is None else cache.layers[i])
        if cache is not None:
            cache.length += ids.size(1)
        return self.predict(x)

    def places(self, ids: Tensor, cache: KVCache | None = None, weights: list[Tensor] | None = None) -> Places:
        """Return the positions of ids and what all parts of the model share; see `forward`."""
        if ids.ndim != 2:
            raise ValueError(f"ids has shape {tuple(ids.shape)}; expected (B, T)")
        start = cache.length if cache else 0
        index = slice(start, start + ids.size(1))
        if index.stop > self.config.block_size:
            raise ValueError(f"{index.stop} positions do not fit into model.block_size={self.config.block_size}")
        window = ids + 1  # 0: a position before the window
        if cache is None:
            window = F.pad(window, (self.n_before, 0))
        else:
            cache.symbols.update(window, index)
            window = cache.symbols.stored[: len(ids), : self.n_before + index.stop]
        return Places(index, window, self.position_embedding, weights)

    def predict(self, x: Tensor) -> Tensor:
        """Return the logits (B, T, V) of the last block's output x (B, T, C), or of an earlier block's (logit lens)."""
        logits = self.lm_head(self.norm(x))  # (B, T, V)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if cap := self.config.logit_softcap:  # keeps logits between -cap and cap (Gemma 2, 2024)
            logits = cap * torch.tanh(logits / cap)
        return logits

    @property
    def ngrams(self) -> NgramMemory | None:
        return cast("NgramMemory", self.memories["ngrams"]) if self.config.ngrams else None

    def sparse_parameters(self) -> list[nn.Parameter]:
        """Return the tables of which a step changes only a few rows.

        They are neither averaged nor clipped, and have an optimiser of their own.
        """
        return [self.ngrams.rows.weight] if self.ngrams else []

    def n_parameters(self) -> int:
        return sum(p.numel() for p in self.parameters())
