"""The data of a viewer of attention maps, a component of pages: viewer.js."""

import base64
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from experiments.heads.measures import ROLES, HeadMeasures, measure_heads
from experiments.heads.model_access import HeadIndex

LEAST = 0.2  # a head has a role if the excess over uniform attention is at least this share of the possible excess
BLANKS = {" ": "␣", "\n": "⏎", "\t": "⇥"}


def visible(character: str, unit: str) -> str:
    """Return a visible label of a character or, if the unit is "byte", of the byte with its code point."""
    if character in BLANKS:
        return BLANKS[character]
    if unit == "byte" and not "!" <= character <= "~":
        return f"\\x{ord(character):02X}"
    is_right_to_left = unicodedata.bidirectional(character) in ("R", "AL")  # would change the order of the others
    is_plain = character.isprintable() and not is_right_to_left
    return character if is_plain else f"U+{ord(character):04X}"


def viewer_data(
    heads: Sequence[HeadIndex], weights: Tensor, text: str, measures: HeadMeasures | None = None
) -> dict[str, Any]:
    """Return what viewer.js shows: the attention weights (N, T, T) of N heads for a text of T characters.

    heads: their names. roles: of each head, see `role_of`, from the measures or, without them, from this text.
    measured: on what, in words. weights: the lower triangles, head by head and row by row, as 16-bit fractions in
    base64.
    """
    where = f"over {measures.n_characters:,} characters of the validation split" if measures else "on this text"
    measures = measures or measure_heads([(weights, text)])
    rows, columns = np.tril_indices(len(text))
    fractions = np.rint(weights.numpy()[:, rows, columns] * 65535).astype("<u2")
    return {
        "heads": list(map(str, heads)),
        "roles": [role_of(measures, i) for i in range(len(heads))],
        "measured": where,
        "weights": base64.b64encode(fractions.tobytes()).decode(),
    }


def role_of(measures: HeadMeasures, head: int) -> tuple[str, str]:
    """Return the role of a head in words, and the figure that shows it.

    It is the target with the largest excess over uniform attention, if this is at least LEAST of the possible excess.
    """
    figures = {name: float(measures.figures[name][head]) for name in ROLES}
    excess = {name: (w - u) / (1 - u) for name, w in figures.items() if (u := measures.uniform[name]) < 1 and w >= 0}
    best = max(excess, key=excess.__getitem__, default="")
    if best and excess[best] >= LEAST:
        return ROLES[best], f"{figures[best]:.2f}"
    return "no fixed target", f"{float(measures.figures['entropy, bits'][head]):.1f} bits"
