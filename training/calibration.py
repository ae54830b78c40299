"""The temperature at which the loss of a model is lowest (Guo et al., 2017)."""

import math

import numpy as np
import torch
from numpy.polynomial import Polynomial
from torch import Tensor

COLDEST, N_MEASURED, N_DERIVATIVES = 4.0, 4, 3
TEMPERATURES = [COLDEST / 2**i for i in range(N_MEASURED)]  # 4, 2, 1 and 1/2


class Calibration:
    """The sum of a loss at four temperatures, with two derivatives, from which follows the loss in between.

    With b = 1 / temperature, the loss of the logits z for the target y is log sum_i exp(b z_i) - b z_y. Its
    derivatives by b are the mean of z minus z_y, and the variance of z, under softmax(b z). The loss of many
    characters is smooth in log b: the polynomial with these values and derivatives differs from it by less than 0.0002
    nats.
    """

    def __init__(self) -> None:
        self._sums: Tensor | float = 0.0
        self._n = 0

    def add(self, logits: Tensor, targets: Tensor) -> None:
        """Add logits (B, T, V) and targets (B, T)."""
        z = logits.flatten(0, 1).float()
        z = z - z.amax(dim=-1, keepdim=True)  # so that exp cannot overflow
        of_target = z.gather(1, targets.flatten()[:, None]).squeeze(1)
        exponentials, rows = (z / COLDEST).exp(), []
        for temperature in TEMPERATURES:
            if temperature < COLDEST:
                exponentials = exponentials.square()  # of twice the logits
            total = exponentials.sum(dim=-1)
            weighted = exponentials * z
            mean, square = weighted.sum(dim=-1) / total, torch.linalg.vecdot(weighted, z) / total
            losses = total.log() - of_target / temperature
            rows.append(torch.stack((losses, mean - of_target, square - mean**2)))
        sums = torch.stack(rows)  # (4 temperatures, 3 derivatives, B T)
        self._sums = self._sums + sums.to("cpu" if sums.device.type == "mps" else sums.device).double().sum(dim=-1)
        self._n += len(z)

    def best(self) -> tuple[float, float]:
        """Return the lowest mean loss at a temperature from 1/2 to 4, in nats, and this temperature."""
        assert isinstance(self._sums, Tensor), "nothing was added"
        value, first, second = (self._sums / self._n).cpu().numpy().T
        b = 1 / np.array(TEMPERATURES)
        x = np.log(b)
        derivatives = [value, b * first, b * first + b**2 * second]  # by x
        basis = [Polynomial.basis(k) for k in range(N_MEASURED * N_DERIVATIVES)]
        system = np.concatenate([[p.deriv(d)(x) for p in basis] for d in range(N_DERIVATIVES)], axis=1).T
        polynomial = Polynomial(np.linalg.solve(system, np.concatenate(derivatives)))
        places = np.linspace(x[0], x[-1], 4001)
        losses = polynomial(places)
        return float(losses.min()), math.exp(-places[losses.argmin()])
