"""Similarity of characters in the model: cosines and dot products of their embeddings."""

from dataclasses import dataclass

import torch
from torch import Tensor

from data.vocabulary import Vocabulary

MOST_CHARACTERS = 100  # more are too small to read in a chart
KINDS = (str.islower, str.isupper, str.isalpha, str.isdigit, lambda character: not character.isspace())


@dataclass(frozen=True)
class CharacterSimilarity:
    """n characters, in the order lower case, upper case, other letters, digits, punctuation, white space.

    cosines (n, n): between their embeddings, 1 for the same direction and 0 for unrelated ones. products (n, n): their
    dot products, which also grow with the lengths of the embeddings.
    """

    characters: str
    cosines: Tensor
    products: Tensor

    def most_alike(self, n: int) -> list[tuple[str, str, float]]:
        """Return the n pairs of different characters with the highest cosines, the highest first."""
        a, b = torch.triu_indices(len(self.characters), len(self.characters), offset=1)
        highest = self.cosines[a, b].sort(descending=True)
        best = zip(highest.indices[:n], highest.values[:n].tolist(), strict=True)
        return [(self.characters[a[i]], self.characters[b[i]], cosine) for i, cosine in best]


def compare_characters(embeddings: Tensor, vocabulary: Vocabulary, counts: Tensor) -> CharacterSimilarity:
    """Compare the embeddings (V, C) of the MOST_CHARACTERS most frequent characters. counts: of each, (V,)."""

    def place(i: int) -> tuple[int, str, int]:
        character = vocabulary.decode([i])
        return next((kind for kind, is_kind in enumerate(KINDS) if is_kind(character)), len(KINDS)), character, i

    frequent = counts.argsort(descending=True, stable=True)[:MOST_CHARACTERS]
    chosen = sorted(frequent.tolist(), key=place)
    rows = embeddings[chosen]  # (n, C)
    unit = torch.nn.functional.normalize(rows, dim=-1)
    return CharacterSimilarity("".join(vocabulary.characters[i] for i in chosen), unit @ unit.T, rows @ rows.T)
