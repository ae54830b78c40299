"""The GPT: it reads characters and predicts the next one at every position.

What it has that GPT-2 (Radford et al., 2019) does not:
- rotary positions instead of learned ones
- RMSNorm without parameters, and no biases
- queries and keys of fixed length, with one learned scale per head
- squared ReLU in the MLP
- an output matrix of its own, not that of the embeddings
- a soft cap on the logits
- zeros in the last map of each layer and in the output matrix at the start
- as options: memories of n-grams and of copies, a convolution before each MLP, fewer heads of keys and values, ALiBi,
  SwiGLU, other scoring functions

`experiments/studies/README.md` says what they are worth.
"""

import math
from collections.abc import Mapping
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.block import Block, CausalConv
from model.cache import KVCache
from model.config import ModelConfig
from model.copy_memory import CopyMemory
from model.embedding import Memory, TokenEmbedding
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
        memories: dict[str, nn.Module] = {}
        if config.ngrams:
            memories["ngrams"] = NgramMemory(config, vocab_size)
        if config.longest_copy:
            memories["copies"] = CopyMemory(config, vocab_size)
        # Type checkers do not know what these containers hold.
        self.memories = cast("Mapping[str, Memory]", nn.ModuleDict(memories))
        self.position_embedding = POSITIONS[config.positions](config)
        self.blocks = cast("list[Block]", nn.ModuleList(Block(config, layer) for layer in config.layers))
        self.norm = make_norm(config)
        self.lm_head = nn.Linear(config.n_embd, vocab_size, bias=False)
        self.init_weights()

    @torch.no_grad()
    def init_weights(self) -> None:
        """Initialise the weights.

        embeddings              normal, std 0.3          the size of what the first blocks soon add; GPT-2's 0.02
                                                         would be lost in it
        attention.qkv, mlp.up   normal, std 1/sqrt(in)   keeps the variance of their input
        ngrams.proj             normal, std 1/sqrt(in)   the same
        ngrams.rows             0                        an n-gram that was never seen adds nothing
        copies.followers        0                        copies add nothing
        copies.strengths        1
        attention.proj          0                        every block starts as the identity
        mlp.proj                0                        the same
        lm_head                 0                        all characters are equally likely: the loss starts at ln V
        biases                  0
        scales of heads         12                       see INITIAL_QK_SCALE
        convolutions            0                        they start as the identity

        A LayerNorm starts with ones. Scoring functions: additive ones are like attention.qkv, and `make_score`
        sets the width of Gaussian ones.
        """
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=module.in_features**-0.5)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding) and not module.sparse:
                nn.init.normal_(module.weight, std=0.3)
            elif isinstance(module, QueryKeyNorm) and module.log_scale is not None:
                nn.init.constant_(module.log_scale, math.log(INITIAL_QK_SCALE))
            elif isinstance(module, CausalConv):
                nn.init.zeros_(module.weight)
        for memory in self.memories.values():
            memory.init_weights()
        for block in self.blocks:
            nn.init.zeros_(block.attention.proj.weight)
            nn.init.zeros_(block.mlp.proj.weight)
        nn.init.zeros_(self.lm_head.weight)

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

    def sparse_parameters(self) -> list[nn.Parameter]:
        """Return the tables of which a step changes only a few rows.

        They are neither averaged nor clipped, and have an optimiser of their own.
        """
        return [p for memory in self.memories.values() for p in memory.sparse_parameters()]

    def count(self, ids: Any) -> None:
        """Count in the training text ids (N,) what the memories need to know about it; see `Memory.count`."""
        for memory in self.memories.values():
            memory.count(ids)

    def set_passes(self, n_passes: float) -> None:
        """Prepare the memories for a run that reads its text this many times."""
        for memory in self.memories.values():
            memory.set_passes(n_passes)

    def n_parameters(self) -> int:
        return sum(p.numel() for p in self.parameters())
