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

`model/README.md` says what some of them are worth.
"""

import math
from dataclasses import dataclass, field
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.block import Block, CausalConv
from model.cache import KVCache
from model.config import ModelConfig
from model.copy_memory import CopyMemory
from model.dropout import dropout
from model.embedding import TokenEmbedding
from model.ngrams import NgramMemory
from model.norm import QueryKeyNorm, make_norm
from model.positions import POSITIONS, Places

INITIAL_QK_SCALE = 12.0  # of learned scales (experiments/studies/RECORDS.md)


@dataclass(frozen=True)
class Intermediates:
    """Lists that `GPT.forward` fills, one entry per layer.

    weights: attention weights (B, H, T, S), without dropout. outputs: of the blocks (B, T, C).
    """

    weights: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)


class GPT(nn.Module):
    """A decoder-only transformer over `vocab_size` characters.

    `GPT(ids (B, T)) -> logits (B, T, V)`: logits[:, t] score the character that follows position t, computed from
    positions 0 to t. The caller computes the loss.
    """

    def __init__(self, config: ModelConfig, vocab_size: int):
        super().__init__()
        self.config = config
        self.token_embedding = TokenEmbedding(vocab_size, config.n_embd)
        self.ngrams = NgramMemory(config, vocab_size) if config.ngrams else None
        self.copies = CopyMemory(config.longest_copy, config.n_embd, vocab_size) if config.longest_copy else None
        self.position_embedding = POSITIONS[config.positions](config)
        # Type checkers do not know what a ModuleList holds.
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
        if self.copies is not None:
            nn.init.zeros_(self.copies.followers.weight)
            nn.init.ones_(self.copies.strengths)
        for block in self.blocks:
            nn.init.zeros_(block.attention.proj.weight)
            nn.init.zeros_(block.mlp.proj.weight)
        nn.init.zeros_(self.lm_head.weight)

    def forward(self, ids: Tensor, cache: KVCache | None = None, kept: Intermediates | None = None) -> Tensor:
        """Return logits (B, T, V) for ids (B, T); with a cache, ids continue the positions in it.

        Logits are float32, or float64 for a float64 model. kept: receives each layer's attention weights and output.
        Raises ValueError if ids are not two-dimensional or the positions exceed block_size.
        """
        if ids.ndim != 2:
            raise ValueError(f"ids has shape {tuple(ids.shape)}; expected (B, T)")
        T, block_size = ids.size(1), self.config.block_size
        if cache is None and block_size < T:
            raise ValueError(f"{T} positions do not fit into model.block_size={block_size}")
        index, visible = (slice(0, T), None) if cache is None else cache.places(T)
        places = Places(index, self.position_embedding, visible, None if kept is None else kept.weights)
        x = self.position_embedding.embed(self.token_embedding(ids), places)  # (B, T, C)
        n_before, recent = self.config.n_before, ids + 1  # 0: a position before the window
        recent = F.pad(recent, (n_before, 0)) if cache is None else cache.recent.update(recent, index)
        if self.ngrams is not None:
            x = x + self.ngrams(recent[:, n_before - self.ngrams.n_before :])
        if self.copies is not None:
            start, window = n_before - self.copies.n_before, recent if cache is None else cache.recent.stored
            x = x + self.copies(recent[:, start:], window[:, start:], index)
        x = dropout(x, self.config.dropout, training=self.training)
        for i, block in enumerate(self.blocks):
            x = block(x, places, None if cache is None else cache.layers[i])
            if kept is not None:
                kept.outputs.append(x)
        if cache is not None:
            cache.length += T
        return self.predict(x)

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
        return [] if self.ngrams is None else [self.ngrams.rows.weight]

    def count(self, ids: Any) -> None:
        """Count the n-grams of the training text ids (N,)."""
        if self.ngrams is not None:
            self.ngrams.count(ids)

    def n_parameters(self) -> int:
        return sum(p.numel() for p in self.parameters())

    def flops_per_character(self, block_size: int) -> int:
        """Return the operations per character of a training step (PaLM: Chowdhery et al., 2022, appendix B).

        These are 6 for each weight of a linear map and, masked scores included, 12 T for each channel of all heads.
        """
        weights = sum(module.weight.numel() for module in self.modules() if isinstance(module, nn.Linear))
        channels = sum(layer.n_head * layer.head_size for layer in self.config.layers)
        return 6 * weights + 12 * block_size * channels
