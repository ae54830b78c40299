"""What all memories have in common; model/README.md says what they are for."""

from typing import Any

from torch import Tensor, nn

from model.positions import Places


class Memory(nn.Module):
    """A module that looks something up for the last characters at each position, so that attention need not find it."""

    def forward(self, places: Places) -> Tensor:
        """Return the vectors (B, T, C) that are added to the embeddings at these positions."""
        raise NotImplementedError

    def init_weights(self) -> None:
        """Let the memory add nothing."""

    def count(self, ids: Any) -> None:
        """Count in the training text ids (N,) what the memory needs to know about it; a slice is a NumPy array."""

    def sparse_parameters(self) -> list[nn.Parameter]:
        """Return the tables of which a step changes only a few rows."""
        return []
