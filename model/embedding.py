"""The vectors of characters."""

import torch
from torch import Tensor, nn

SMALL_VOCABULARY = 256  # up to this size, a one-hot matrix is small and fast on a GPU


class TokenEmbedding(nn.Embedding):
    """`nn.Embedding`: ids (B, T) -> (B, T, C), with a gradient that sums in a fixed order on a GPU."""

    def forward(self, ids: Tensor) -> Tensor:
        if ids.device.type != "cuda":
            return super().forward(ids)
        if self.num_embeddings <= SMALL_VOCABULARY and torch.is_grad_enabled():
            # A product sums its gradient in a fixed order; PyTorch's other backward passes sum in any order, or wait.
            one_hot = ids.unsqueeze(-1) == torch.arange(self.num_embeddings, device=ids.device)  # (B, T, V)
            with torch.autocast("cuda", enabled=False):
                return one_hot.to(self.weight.dtype) @ self.weight
        # The backward pass of nn.Embedding over thousands of characters may wait for the GPU, and a CUDA graph cannot
        # capture that (github.com/pytorch/pytorch/issues/82886).
        return self.weight.index_select(0, ids.flatten()).view(*ids.shape, -1)
