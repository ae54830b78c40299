"""Similarity of characters in the model: cosines between their embeddings."""

from dataclasses import dataclass

import torch
from torch import Tensor

from data.vocabulary import Vocabulary

MOST_CHARACTERS = 100  # more are too small to read in a chart
KINDS = (str.islower, str.isupper, str.isalpha, str.isdigit, lambda character: not character.isspace())


@dataclass(frozen=True)
class CharacterSimilarity:
    """n characters, in the order lower case, upper case, other letters, digits, punctuation, white space.

    cosines (n, n): between their embeddings, 1 for the same direction and 0 for unrelated ones.
    """

    characters: str
    cosines: Tensor

    def most_alike(self, n: int) -> list[tuple[str, str, float]]:
        """Return the n pairs of different characters with the highest cosines, the highest first."""
        rows, columns = torch.triu_indices(len(self.characters), len(self.characters), offset=1)
        best = self.cosines[rows, columns].argsort(descending=True)[:n]
        pairs = [(int(rows[i]), int(columns[i])) for i in best]
        return [(self.characters[a], self.characters[b], float(self.cosines[a, b])) for a, b in pairs]


def compare_characters(embeddings: Tensor, vocabulary: Vocabulary, counts: Tensor) -> CharacterSimilarity:
    """Compare the embeddings (V, C) of the MOST_CHARACTERS most frequent characters. counts: of each, (V,)."""
    frequent = counts.argsort(descending=True, stable=True)[:MOST_CHARACTERS]
    chosen = sorted(frequent.tolist(), key=lambda i: (*_sort_key(vocabulary.decode([i])), i))
    unit = torch.nn.functional.normalize(embeddings[chosen], dim=-1)  # (n, C)
    return CharacterSimilarity("".join(vocabulary.characters[i] for i in chosen), unit @ unit.T)


def _sort_key(character: str) -> tuple[int, str]:
    return next((i for i, is_kind in enumerate(KINDS) if is_kind(character)), len(KINDS)), character
