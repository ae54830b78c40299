"""PyTorch's optimisers without PyTorch's compiler, whose import takes a second of every start.

Their methods import it to tell it not to compile them (torch/_compile.py, torch/optim/optimizer.py). Here nothing
compiles an optimiser: `train.compile` compiles the blocks of the model.
"""

from typing import Any

import torch
from torch.optim import Optimizer


def skip_compiler() -> None:
    """Let the methods of optimisers run as they are for the rest of the process."""
    for method in vars(Optimizer).values():
        if original := getattr(method, "__wrapped__", None):
            original.__dynamo_disable = original  # the method calls this, which otherwise comes from the compiler


class AdamW(torch.optim.AdamW):
    """`torch.optim.AdamW`, the same to the last bit."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        return torch.optim.Adam.step.__wrapped__(self, closure)  # type: ignore[attr-defined]
