"""A teacher: an earlier run, whose probabilities a run learns beside the text (distillation: Hinton et al., 2015).

The text shows one character that came next; a teacher shows how likely each would have been. A student of the same size
predicts better than its teacher (born-again networks: Furlanello et al., 2018).
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from model.gpt import GPT

TEMPERATURE = 1.1  # of the teacher, which is too sure of itself


class Teacher:
    """model: the network of an earlier run, without counts, which know what comes next in the training text.

    digest: SHA-256 of its weights.
    """

    def __init__(self, model: GPT, digest: str):
        self.model, self.digest = model.eval().requires_grad_(False), digest

    def loss(self, logits: Tensor, ids: Tensor) -> Tensor:
        """Return the mean cross-entropy () of logits (B, T, V) with the teacher's probabilities after ids (B, T)."""
        with torch.no_grad():
            probabilities = (self.model(ids) / TEMPERATURE).softmax(-1)  # (B, T, V)
        return F.cross_entropy(logits.flatten(0, 1), probabilities.flatten(0, 1))
