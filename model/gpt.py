"""GPT: characters in, a guess about every next character out."""

import torch
from torch import Tensor, nn

from model.block import Block
from model.cache import KVCache
from model.config import ModelConfig
from model.dropout import Dropout
from model.norm import make_norm
from model.positions import Rotary


class GPT(nn.Module):
    """A decoder-only transformer over `vocab_size` characters.

    `GPT(ids (B, T)) -> logits (B, T, V)`: logits[:, t] score the character that follows position t, computed from
    positions 0 to t alone. The loss is computed by whoever trains.
    """

    def __init__(self, config: ModelConfig, vocab_size: int):
        super().__init__()
        self.config = config
        self.token_embedding = nn.Embedding(vocab_size, config.n_embd)
        if config.positions == "learned":
            self.position_embedding = nn.Embedding(config.block_size, config.n_embd)
        else:
            sizes = sorted({config.layer(i).size_per_head for i in range(config.n_layer)})
            self.rotary = nn.ModuleDict({str(size): Rotary(size, config.block_size) for size in sizes})
        self.embedding_dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config.layer(i)) for i in range(config.n_layer))
        self.norm = make_norm(config)
        self.head = nn.Linear(config.n_embd, vocab_size, bias=False)
        self.init_weights()

    @torch.no_grad()
    def init_weights(self) -> None:
        """All initialisation.

        Every block starts as the identity and every guess as uniform (loss ln V at step 0), because each map that
        writes into the residual stream, and the head, start at zero. The maps that read from it are normal with
        standard deviation 1 / sqrt(C), which keeps the variance of what they are given. Embeddings are of the size of
        what the first blocks soon write beside them; at GPT-2's 0.02 they drown at first (experiments/RECORDS.md).
        """
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=module.in_features**-0.5)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=0.3)
        for block in self.blocks:
            nn.init.zeros_(block.attention.proj.weight)
            nn.init.zeros_(block.mlp.proj.weight)
        nn.init.zeros_(self.head.weight)

    def forward(self, ids: Tensor, cache: KVCache | None = None) -> Tensor:
        """Logits (B, T, V), float32, for ids (B, T); with a cache, ids continue the positions that it holds.

        Raises ValueError where ids have another shape or the positions would pass block_size.
        """
        if ids.ndim != 2:
            raise ValueError(f"ids has shape {tuple(ids.shape)}; expected (B, T)")
        start, T = cache.length if cache else 0, ids.size(1)
        if start + T > self.config.block_size:
            raise ValueError(f"{start + T} positions do not fit into model.block_size={self.config.block_size}")
        x, rotations = self.embed(ids, start)
        for i, block in enumerate(self.blocks):
            x = block(x, rotations.get(block.attention.head_size), cache.layers[i] if cache else None)
        return self.to_logits(x)

    def embed(self, ids: Tensor, start: int = 0) -> tuple[Tensor, dict[int, tuple[Tensor, Tensor]]]:
        """What the first block is given, (B, T, C), and the rotations of each head size that occurs, see `Rotary`.

        ids (B, T) stand at positions start to start + T - 1.
        """
        T = ids.size(1)
        x, rotations = self._look_up(ids), {}  # (B, T, C)
        if self.config.positions == "learned":
            x = x + self.position_embedding.weight[start : start + T]
        else:
            rotations = {int(size): rotary(start, T) for size, rotary in self.rotary.items()}
        return self.embedding_dropout(x), rotations

    def _look_up(self, ids: Tensor) -> Tensor:
        if ids.device.type != "cuda":
            return self.token_embedding(ids)
        # The backward pass of nn.Embedding over thousands of characters may wait for the GPU, and could then not be
        # captured in a CUDA graph (github.com/pytorch/pytorch/issues/82886).
        return self.token_embedding.weight.index_select(0, ids.flatten()).view(*ids.shape, -1)

    def to_logits(self, x: Tensor) -> Tensor:
        """Logits (..., V), float32, from what the last block gives, (..., C)."""
        logits = self.head(self.norm(x)).float()
        if cap := self.config.logit_softcap:
            logits = cap * torch.tanh(logits / cap)
        return logits

    def n_parameters(self) -> int:
        return sum(p.numel() for p in self.parameters())
