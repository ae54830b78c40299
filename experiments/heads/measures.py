"""What heads look at, in numbers: means over the characters of a text, for every head of a network."""

import re
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from data.vocabulary import code_points

# A line that names who speaks next in a play: after an empty line, and ended by a colon.
SPEAKER = re.compile(r"\n\n([^\n:]+):\n")

# What a head's weight is added up over, by name.
TARGETS = {
    "itself": "the character itself",
    "previous": "the character before",
    "same earlier": "the same character, earlier",
    "what followed it": "what followed the same character earlier (induction: Olsson et al., 2022)",
    "line start": "the first character of the line",
    "speaker name": "the name of who speaks",
}


@dataclass(frozen=True)
class HeadStatistics:
    """Of N heads, those of the first layer first. Means over the characters of windows, all but each window's first.

    entropy_bits (N,): of the weights; 0 where a head looks at one character, log2(t) where at t alike.
    distance (N,): mean number of characters looked back, by weight.
    shares: for each of TARGETS, (N,), the weight on it, over the characters that have one in their window; NaN where
    none has.
    uniform: the same for a head that looks at all it sees alike, (): what is more than this is no accident.
    similarity (N, N): cosine of the weights of two heads, character by character.
    """

    entropy_bits: Tensor
    distance: Tensor
    shares: dict[str, Tensor]
    uniform: dict[str, float]
    similarity: Tensor
    n_characters: int


class HeadTally:
    """Adds windows up to `HeadStatistics`."""

    def __init__(self):
        self.n_characters = 0
        self.sums: dict[str, Tensor] = {}
        self.uniform_sums = dict.fromkeys(TARGETS, 0.0)
        self.counts = dict.fromkeys(TARGETS, 0)

    def add(self, weights: Tensor, text: str) -> None:
        """weights (N, T, T): how each of N heads weighs the text's T characters; each row sums to 1 over its past."""
        _, T, _ = weights.shape
        position = torch.arange(T, dtype=torch.float64)
        self.n_characters += T - 1
        rows = weights[:, 1:]  # the first character sees itself alone
        self._add("entropy_bits", torch.special.entr(rows).sum((-1, -2), dtype=torch.float64) / np.log(2))
        self._add("distance", (rows * (position[1:, None] - position).float()).sum((-1, -2), dtype=torch.float64))
        unit = (rows / rows.norm(dim=-1, keepdim=True)).flatten(1)
        self._add("similarity", (unit @ unit.T).double())
        uniform = torch.ones(T, T, dtype=torch.float64).tril() / (position[:, None] + 1)
        for name, mask in target_masks(text).items():
            has_one = mask.any(-1)
            has_one[0] = False
            self.counts[name] += int(has_one.sum())
            mask = mask & has_one[:, None]
            self._add(name, (weights * mask).sum((-1, -2), dtype=torch.float64))
            self.uniform_sums[name] += float((uniform * mask).sum())

    def result(self) -> HeadStatistics:
        n, counts = self.n_characters, self.counts
        return HeadStatistics(
            entropy_bits=self.sums["entropy_bits"] / n,
            distance=self.sums["distance"] / n,
            shares={name: self.sums[name] / (counts[name] or np.nan) for name in TARGETS},
            uniform={name: self.uniform_sums[name] / (counts[name] or np.nan) for name in TARGETS},
            similarity=self.sums["similarity"] / n,
            n_characters=n,
        )

    def _add(self, name: str, value: Tensor) -> None:
        self.sums[name] = self.sums[name] + value if name in self.sums else value


def target_masks(text: str) -> dict[str, Tensor]:
    """For each of TARGETS, (T, T): whether the character of the column is one of the row's targets."""
    T = len(text)
    ids = torch.from_numpy(code_points(text).astype(np.int64))
    position = torch.arange(T)
    past = position[:, None] > position  # of the row, itself not included
    same = (ids[:, None] == ids) & past
    follower = torch.zeros(T, T, dtype=torch.bool)
    follower[:, 1:] = same[:, :-1]
    follower &= past  # in "oo", what followed the first o is the second itself
    line_start, speaker = torch.zeros(T, T, dtype=torch.bool), torch.zeros(T, T, dtype=torch.bool)
    start = None  # unknown until a line has begun in this window
    for t, character in enumerate(text):
        if start is not None:
            line_start[t, start] = True
        if character == "\n" and t + 1 < T:
            start = t + 1
    for name in SPEAKER.finditer(text):
        later = slice(name.end(), T)
        speaker[later] = False  # this speaker takes over
        speaker[later, name.start(1) : name.end(1)] = True
    return {
        "itself": torch.eye(T, dtype=torch.bool),
        "previous": torch.eye(T, dtype=torch.bool).roll(-1, dims=1).tril(-1),
        "same earlier": same,
        "what followed it": follower,
        "line start": line_start,
        "speaker name": speaker,
    }
