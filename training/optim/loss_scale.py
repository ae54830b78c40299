"""Loss scaling for float16, whose smallest numbers are larger than many gradients."""

import torch
from torch import Tensor

INITIAL_SCALE = 2.0**16
GROWTH_STEPS = 2000


class LossScale:
    """A factor of the loss, and so of all gradients, that the optimisers never see (Micikevicius et al., 2018).

    It is halved after an update that overflowed, and doubled after GROWTH_STEPS updates in a row that did not. Like the
    weights, it stays on the device.
    """

    def __init__(self, device: torch.device):
        self.value = torch.full((), INITIAL_SCALE, device=device)
        self.age = torch.zeros((), device=device)  # updates since it changed

    def remove_from(self, gradients: list[Tensor]) -> None:
        """Divide gradients by the scale. Infinite ones stay infinite."""
        torch._foreach_mul_(gradients, 1 / self.value)

    def update(self, found_inf: Tensor) -> None:
        """Adjust the scale after an update. found_inf (): 1 if it was skipped, otherwise 0."""
        self.age.add_(1).mul_(found_inf == 0)
        grows = self.age >= GROWTH_STEPS
        self.value.mul_(1 - 0.5 * found_inf).mul_(1 + grows.float())
        self.age.mul_(~grows)
