"""The next position alone: what a GPT computes for one more character of each sequence."""

import torch
import torch.nn.functional as F
from torch import Tensor

from model.block import Block
from model.cache import KVCache, LayerCache
from model.gpt import GPT
from model.norm import rms_norm
from model.positions import rotate
from model.scoring import scaled_dot


class Decoder:
    """Reads one character of each of B sequences at a time: `decoder(ids (B,)) -> logits (B, V)`.

    Equal to `model(ids[:, None], cache)`, in a sixth to a third less time for a small network on a CPU, where the calls
    of modules and the checks around a hundred tiny operations weigh as much as these. For networks that `can_decode`
    names.

    With `fixed_shapes` the position is a number on the device, and each step reads the whole cache through a mask: so
    all steps are the same to the device, which is what a CUDA graph needs.
    """

    def __init__(self, model: GPT, cache: KVCache, *, fixed_shapes: bool = False):
        self.model, self.cache = model, cache
        self.layers = [_Layer(block, layer) for block, layer in zip(model.blocks, cache.layers, strict=True)]
        self.embedding = model.token_embedding.weight
        self.rotations = {}
        if model.config.positions == "rope":
            self.rotations = {int(size): (rotary.cos, rotary.sin) for size, rotary in model.rotary.items()}
        self.places = self.position = None
        if fixed_shapes:
            self.places = torch.arange(model.config.block_size, device=self.embedding.device)[None]
            self.position = torch.zeros(1, dtype=torch.long, device=self.embedding.device)

    @staticmethod
    def can_decode(model: GPT) -> bool:
        """Whether every layer scores by scaled products, the only ones that PyTorch's fused attention knows."""
        return all(block.attention.score is scaled_dot for block in model.blocks)

    def follow_cache(self) -> None:
        """Tells the device which position comes next; with `fixed_shapes`, before every step."""
        self.position.fill_(self.cache.length)

    def __call__(self, ids: Tensor) -> Tensor:
        position, visible = self.position, None
        rows = position  # of the tables of positions
        if position is None:
            rows = slice(self.cache.length, self.cache.length + 1)
        else:
            visible = self.places <= position  # (1, S)
        x = F.embedding(ids, self.embedding)  # (B, C)
        if not self.rotations:
            x = x + self.model.position_embedding.weight[rows]
        rotations = {size: (cos[rows], sin[rows]) for size, (cos, sin) in self.rotations.items()}  # (1, D/2) each
        for layer in self.layers:
            x = x + layer.attend(x, rotations.get(layer.head_size), position, visible)
            x = x + layer.transform(x)
        return self.model.to_logits(x)


class _Layer:
    """A block for one position: its weights, its norms and its cache, where Python finds them at once."""

    def __init__(self, block: Block, cache: LayerCache):
        attention, mlp = block.attention, block.mlp
        self.n_head, self.n_kv_head, self.head_size = attention.n_head, attention.n_kv_head, attention.head_size
        self.qk_norm, self.cache = attention.qk_norm, cache
        self.attention_norm, self.mlp_norm = block.attention_norm.forward, block.mlp_norm.forward
        self.activate = mlp.activate
        self.qkv, self.proj, self.up, self.down = (
            (linear.weight, linear.bias) for linear in (attention.qkv, attention.proj, mlp.up, mlp.proj)
        )

    def attend(self, x: Tensor, rotation: tuple | None, position: Tensor | None, visible: Tensor | None) -> Tensor:
        """What attention adds to x (B, C)."""
        H, K, D = self.n_head, self.n_kv_head, self.head_size
        qkv = F.linear(self.attention_norm(x), *self.qkv).view(-1, H + 2 * K, 1, D)
        qk, v = qkv.split_with_sizes((H + K, K), dim=1)  # (B, H + K, 1, D), (B, K, 1, D)
        if self.qk_norm:
            qk = rms_norm(qk)
        if rotation is not None:
            qk = rotate(qk, *rotation)
        q, k = qk.split_with_sizes((H, K), dim=1)
        k, v = self.cache.append(k, v) if position is None else self.cache.write(k, v, position)  # (B, K, S, D)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=visible, enable_gqa=K < H)  # (B, H, 1, D)
        return F.linear(y.reshape(-1, H * D), *self.proj)

    def transform(self, x: Tensor) -> Tensor:
        """What the MLP adds to x (B, C)."""
        return F.linear(self.activate(F.linear(self.mlp_norm(x), *self.up)), *self.down)
