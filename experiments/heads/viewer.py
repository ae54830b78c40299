"""The viewer of attention maps: a component of pages, with viewer.js and viewer.css."""

import base64
import unicodedata
from collections.abc import Sequence
from html import escape
from itertools import groupby

import numpy as np
from torch import Tensor

from data.vocabulary import Vocabulary
from experiments.heads.model_access import HeadIndex
from experiments.html_page import json_for_script

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


def pack(weights: Tensor) -> str:
    """Return the lower triangles of (N, T, T), head by head and row by row, as 16-bit fractions in base64."""
    _, T, _ = weights.shape
    rows, columns = np.tril_indices(T)
    numbers = np.rint(weights.numpy()[:, rows, columns] * 65535).astype("<u2")
    return base64.b64encode(numbers.tobytes()).decode()


def make_viewer(heads: Sequence[HeadIndex], vocabulary: Vocabulary, ids: np.ndarray, weights: Tensor) -> str:
    """Return the HTML of a viewer of the attention weights (N, T, T) of N heads for a text of T ids."""
    rows = ""
    for _, row in groupby(heads, key=lambda head: head.layer):
        cells = (f'<button class="head"><canvas></canvas>{head}</button>' for head in row)
        rows += f'<div class="row">{"".join(cells)}</div>'
    spans = ""
    text = vocabulary.spell(ids)
    shown = [visible(character, vocabulary.unit) for character in text]
    for character, label in zip(text, shown, strict=True):
        blank = ' class="blank"' if label != character else ""
        spans += f"<span{blank}>{escape(label)}</span>{'<br>' if character == chr(10) else ''}"
    data = {"shown": shown, "heads": list(map(str, heads)), "weights": pack(weights)}
    return f"""<div class="viewer">
<div class="grid">{rows}</div>
<div>
<div class="text" tabindex="0" role="application" aria-label="the text, character by character">{spans}</div>
<p class="looking" aria-live="polite"></p><ol class="keys"></ol>
<div class="frame"><canvas class="map"></canvas><div class="chosen-row"></div></div>
<p class="faint">The whole map of this head. Each row is a character, and each column a character that it can see. <span
class="place"></span></p>
</div>
<script type="application/json" class="data">{json_for_script(data)}</script>
</div>"""
