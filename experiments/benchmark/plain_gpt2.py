"""A plain GPT-2 that samples as nanoGPT does: it computes the whole window for every character."""

import torch.nn.functional as F
from torch import Tensor, nn

from model.config import ModelConfig
from model.textbook.chapter7b_gpt import TextbookGPT


class JoinedHeads(nn.Module):
    """`TextbookAttention` with one linear map for all heads and PyTorch's fused attention: (B, T, C) -> (B, T, C)."""

    def __init__(self, n_embd: int, n_head: int):
        super().__init__()
        self.n_head = n_head
        self.qkv = nn.Linear(n_embd, 3 * n_embd, bias=False)
        self.proj = nn.Linear(n_embd, n_embd, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.qkv(x).unflatten(2, (3, self.n_head, -1))  # (B, T, 3, H, D)
        q, k, v = qkv.transpose(1, 3).unbind(2)  # (B, H, T, D) each
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).flatten(2))


def plain_gpt2(config: ModelConfig, vocab_size: int) -> TextbookGPT:
    """Return GPT-2 with as many layers, heads and channels as the config's model."""
    size = {"n_layer": config.n_layer, "n_embd": config.n_embd, "block_size": config.block_size}
    n_head = config.layers[0].n_head
    model = TextbookGPT(vocab_size, n_head=n_head, **size)
    for block in model.blocks:
        block.attention = JoinedHeads(config.n_embd, n_head)
    return model
