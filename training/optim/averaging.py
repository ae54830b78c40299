"""The average of a model's weights over the recent part of a run."""

import torch
from torch import nn

from model.gpt import GPT


class WeightAverage:
    """A second model, whose weights are averages of those that training produces (Polyak and Juditsky, 1992).

    The mean age of the averaged weights is `fraction` of the run so far: with 0.1, after 1,000 steps, 100 steps. After
    step t, the weights of step s count about in proportion to s^(1 / fraction - 2) (the power function average of
    Karras et al., 2024, section 3.1). At any time, an average predicts about like a model whose learning rate has
    fallen, and overfits less.

    trained: the model that training changes. model: another one, which receives the averages.
    """

    def __init__(self, trained: GPT, model: GPT, fraction: float):
        self.trained, self.model, self.fraction = trained, model, fraction
        sparse = set(trained.sparse_parameters())
        for name, x in [*trained.named_parameters(), *trained.named_buffers()]:
            if x in sparse or not isinstance(x, nn.Parameter):  # not averaged: both models have the same tensor
                owner, _, own_name = name.rpartition(".")
                setattr(model.get_submodule(owner), own_name, x)

    @torch.no_grad()
    def update(self, n_steps: int) -> None:
        """Add the present weights to the average. n_steps: how many steps it then has, 1, 2, ..."""
        share = 1 / (1 + self.fraction / (1 - self.fraction) * (n_steps - 1))  # 1 for the first weights
        pairs = zip(self.model.parameters(), self.trained.parameters(), strict=True)
        averages, weights = zip(*(pair for pair in pairs if pair[0] is not pair[1]), strict=True)
        torch._foreach_lerp_(averages, weights, share)
