"""Passages in which a head attends most strongly to a single character, away from itself and its neighbour."""

from dataclasses import dataclass

from torch import Tensor

NEAREST = 2  # characters back; the tables show the weights on the character itself and the one before


@dataclass(frozen=True, order=True)
class Passage:
    """A text in which a head attends from position `query` to position `key`, at least NEAREST before it."""

    weight: float
    query: int
    key: int
    text: str


class PassageSearch:
    """The passages with the highest weights of each of N heads, at most one from each window.

    Only characters in the second half of a window count: they have many characters to choose from.

    best: n_passages passages or fewer of each head, the highest weight first.
    """

    def __init__(self, n_heads: int, *, n_passages: int):
        self.n_passages = n_passages
        self.best: list[list[Passage]] = [[] for _ in range(n_heads)]

    def add(self, weights: Tensor, text: str) -> None:
        """Search a window: the attention weights (N, T, T) of N heads for a text of T characters."""
        T = len(text)
        far = weights.tril(-NEAREST)  # (N, T, T)
        far[:, : T // 2] = 0
        highest, places = far.flatten(1).max(-1)
        for i, (weight, place) in enumerate(zip(highest.tolist(), places.tolist(), strict=True)):
            if weight > 0:
                found = [*self.best[i], Passage(weight, place // T, place % T, text)]
                self.best[i] = sorted(found, reverse=True)[: self.n_passages]
