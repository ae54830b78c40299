"""Words that pages show for characters and heads."""

import unicodedata

from experiments.heads.measures import ROLES, HeadMeasures

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
