"""Passages in which a head attends most strongly to a single character, away from itself and its neighbour."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from experiments.heads.model_access import Window

NEAREST = 2  # characters back; the tables show the weights on the character itself and the one before


@dataclass(frozen=True, order=True)
class Passage:
    """A text in which a head attends from position `query` to position `key`, at least NEAREST before it."""

    weight: float
    query: int
    key: int
    text: str


def find_passages(windows: Iterable[Window], n: int) -> list[list[Passage]]:
    """Return the n passages with the highest weights of each head, the highest first; at most one from each window.

    Only characters in the second half of a window count: they have many characters to choose from.
    """
    best: dict[int, list[Passage]] = defaultdict(list)  # by head
    for weights, text in windows:
        T = len(text)
        far = weights.tril(-NEAREST)  # (N, T, T)
        far[:, : T // 2] = 0
        highest, places = far.flatten(1).max(-1)
        for head, (weight, place) in enumerate(zip(highest.tolist(), places.tolist(), strict=True)):
            found = [*best[head], Passage(weight, place // T, place % T, text)]
            best[head] = sorted(found, reverse=True)[:n]
    return [[passage for passage in found if passage.weight > 0] for found in best.values()]
