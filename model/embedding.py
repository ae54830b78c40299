"""What the first block reads: the vectors of characters, and what memories add to them."""

from typing import Any

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


class Memory(nn.Module):
    """The interface of memories: they look something up for the last characters, so that attention need not find it.

    `forward` maps the `Places` of a pass to vectors (B, T, C), which are added to the embeddings.
    """

    def init_weights(self) -> None:
        """Let the memory add nothing."""

    def count(self, ids: Any) -> None:
        """Count in the training text ids (N,) what the memory needs to know about it; a slice is a NumPy array."""

    def set_passes(self, n_passes: float) -> None:
        """Prepare for a run that reads its text this many times."""

    def sparse_parameters(self) -> list[nn.Parameter]:
        """Return the tables of which a step changes only a few rows."""
        return []
