"""The data of a viewer of attention maps, a component of pages: viewer.html and viewer.js."""

import base64
import unicodedata
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
from torch import Tensor

from data.vocabulary import Vocabulary
from experiments.heads.model_access import HeadIndex

BLANKS = {" ": "␣", "\n": "⏎", "\t": "⇥"}


def visible(character: str, unit: str) -> str:
    """Return a visible label of a character or, if the unit is "byte", of the byte with its code point."""
    if character in BLANKS:
        return BLANKS[character]
    if unit == "byte" and not "!" <= character <= "~":
        return f"\\x{ord(character):02X}"
    is_right_to_left = unicodedata.bidirectional(character) in ("R", "AL")  # would change the order of the others
    is_plain = character.isprintable() and not character.isspace() and not is_right_to_left
    return character if is_plain else f"U+{ord(character):04X}"


def viewer_data(heads: Sequence[HeadIndex], vocabulary: Vocabulary, ids: np.ndarray, weights: Tensor) -> dict[str, Any]:
    """Return what viewer.js shows: the attention weights (N, T, T) of N heads for a text of T ids.

    text, shown: the T characters and their labels. layers: the names of the heads of each layer. weights: the lower
    triangles, head by head and row by row, as 16-bit fractions in base64.
    """
    text = vocabulary.spell(ids)
    rows, columns = np.tril_indices(len(text))
    fractions = np.rint(weights.numpy()[:, rows, columns] * 65535).astype("<u2")
    return {
        "text": list(text),
        "shown": [visible(character, vocabulary.unit) for character in text],
        "layers": [[str(head) for head in layer] for _, layer in groupby(heads, key=lambda head: head.layer)],
        "weights": base64.b64encode(fractions.tobytes()).decode(),
    }
