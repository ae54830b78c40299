"""Draws what queries, keys and values do in one causal head, as an SVG: python -m experiments.attention_picture"""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from experiments.drawing import PALETTE
from model.attention import masked_softmax
from model.scoring import scaled_dot
from training.command import CommandParser, run_command, tell_mistakes

CHARACTERS, D, SEED, SHOWN = "to be", 3, 4235, 3  # SHOWN: the query whose row is followed to the output
T = len(CHARACTERS)
LABELS = [c.replace(" ", "␣") for c in CHARACTERS]
CELL, ROW, BOX = 46, 38, 15  # width and height of a cell of a matrix, side of one channel of a vector
TOP, SCORES, WEIGHTS, OUTPUT = 172, 136, 478, 806  # where the rows begin, and the columns of each part
QUERY, KEY, VALUE = "var(--series-0)", "var(--series-1)", "var(--series-2)"
STYLE = f"""{PALETTE}
svg {{ background: var(--ground); font: 15px system-ui, sans-serif; }}
text {{ fill: var(--ink); text-anchor: middle; }} .left {{ text-anchor: start; }} .end {{ text-anchor: end; }}
.title {{ font-weight: 600; }} .note {{ fill: var(--faint); font-size: 13px; }} .number {{ font-size: 14px; }}
.character {{ font: 17px ui-monospace, monospace; }}
.grid {{ fill: none; stroke: var(--line); }} .future {{ fill: url(#hatch); }} .hidden {{ fill: var(--faint); }}
.strong {{ font-weight: 600; }}
.arrow {{ stroke: var(--ink); stroke-width: 1.5; fill: none; marker-end: url(#head); }}
.followed {{ fill: none; stroke: var(--ink); stroke-width: 2; }}
"""
DEFINITIONS = """<defs>
<pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
<path d="M0 0V7" stroke="var(--line)" stroke-width="3"/></pattern>
<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path d="M0 0L8 4L0 8Z" fill="var(--ink)"/></marker>
</defs>"""


def picture() -> str:
    """Return the picture as SVG. Its numbers come from the functions that the GPT runs."""
    q, k, v = torch.randn(3, T, D, generator=torch.Generator().manual_seed(SEED), dtype=torch.float64)
    scores = scaled_dot(q, k)
    weights = masked_softmax(scores, causal=True)
    parts = [
        *_side(q),
        *_matrix(SCORES, "1. Compare and mask", "scores = q · k / √d", k, KEY, "key"),
        *_matrix(WEIGHTS, "2. Softmax of each row", "weights: each row sums to 1", v, VALUE, "value"),
        *(_score(t, s, scores[t, s]) for t in range(T) for s in range(T)),
        *(_weight(t, s, weights[t, s]) for t in range(T) for s in range(t + 1)),
        _text(OUTPUT + 0.5 * D * BOX, 28, "3. Sum", "title"),
        _text(OUTPUT + 0.5 * D * BOX, 48, "weights \N{MULTIPLICATION SIGN} values", "note"),
        _text(OUTPUT + 0.5 * D * BOX, TOP - 14, "output", "note"),
        *(_vector(OUTPUT, _middle(t) - BOX / 2, y, "var(--series-3)") for t, y in enumerate(weights @ v)),
        *_arrow(SCORES, WEIGHTS, "softmax"),
        *_arrow(WEIGHTS, OUTPUT, "sum"),
        f'<rect class="followed" x="18" y="{TOP + SHOWN * ROW}" width="{OUTPUT + D * BOX}" height="{ROW}" rx="7"/>',
        *_words(weights[SHOWN]),
    ]
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 478" role="img">\n'
        "<title>One head of causal self-attention: queries are compared with keys, the future is masked, and the "
        f"weights sum the values</title>\n<style>{STYLE}</style>\n{DEFINITIONS}\n" + "\n".join(parts) + "\n</svg>\n"
    )


def _middle(t: int) -> float:
    return TOP + (t + 0.5) * ROW


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{kind}">{text}</text>'


def _vector(x: float, y: float, values: Tensor, colour: str, *, upright: bool = False) -> str:
    """A box for each channel: the larger its value, the stronger its colour."""
    boxes = []
    for i, value in enumerate(values.tolist()):
        strength = min(max(0.5 + value / 3, 0.08), 1.0)
        place = f'x="{x:g}" y="{y + i * BOX:g}"' if upright else f'x="{x + i * BOX:g}" y="{y:g}"'
        size = f'width="{BOX}" height="{BOX}" stroke="{colour}"'
        boxes.append(f'<rect {place} {size} fill="{colour}" fill-opacity="{strength:.2f}"/>')
    return "".join(boxes)


def _side(q: Tensor) -> list[str]:
    """The characters with their queries, down the left side."""
    labels = [_text(40, _middle(t) + 6, LABELS[t], "character") for t in range(T)]
    vectors = [_vector(62, _middle(t) - BOX / 2, row, QUERY) for t, row in enumerate(q)]
    return [_text(62 + D * BOX / 2, TOP - 14, "query", "note"), *labels, *vectors]


def _matrix(x: float, title: str, formula: str, columns: Tensor, colour: str, name: str) -> list[str]:
    """An empty T x T matrix with a title, and a vector and a character above each column; the future is hatched."""
    middle = x + T * CELL / 2
    parts = [_text(middle, 28, title, "title"), _text(middle, 48, formula, "note")]
    for s, column in enumerate(columns):
        parts.append(_text(x + (s + 0.5) * CELL, 90, LABELS[s], "character"))
        parts.append(_vector(x + (s + 0.5) * CELL - BOX / 2, 104, column, colour, upright=True))
        if s:
            parts.append(f'<rect class="future" x="{x + s * CELL}" y="{TOP}" width="{CELL}" height="{s * ROW}"/>')
    lines = [f"M{x} {TOP + t * ROW}h{T * CELL}" for t in range(T + 1)]
    lines += [f"M{x + s * CELL} {TOP}v{T * ROW}" for s in range(T + 1)]
    parts.append(_text(x + 8, 130, name, "note end"))
    return [*parts, f'<path class="grid" d="{"".join(lines)}"/>']


def _score(t: int, s: int, score: Tensor) -> str:
    x, y = SCORES + (s + 0.5) * CELL, _middle(t) + 5
    if s > t:
        return _text(x, y, "\N{MINUS SIGN}∞", "number hidden")
    return _text(x, y, f"{score.item():.1f}".replace("-", "\N{MINUS SIGN}"), "number")


def _weight(t: int, s: int, weight: Tensor) -> str:
    x, y = WEIGHTS + s * CELL, TOP + t * ROW
    shade = f'<rect x="{x + 1}" y="{y + 1}" width="{CELL - 2}" height="{ROW - 2}" fill="{VALUE}"'
    return f'{shade} fill-opacity="{0.6 * weight:.2f}"/>' + _text(
        x + CELL / 2, _middle(t) + 5, f"{weight:.2f}", "number"
    )


def _arrow(matrix: float, end: float, label: str) -> list[str]:
    """An arrow in the framed row, from a matrix to what follows."""
    start, y = matrix + T * CELL + 8, _middle(SHOWN)
    return [_text((start + end - 8) / 2, y - 1, label, "note"), f'<path class="arrow" d="M{start} {y + 8}H{end - 8}"/>']


def _words(weights: Tensor) -> list[str]:
    """What the colours mean, and the framed row in words."""
    y, parts = TOP + T * ROW + 36, []
    for x, colour, meaning in (
        (20, QUERY, "query: what a position looks for"),
        (306, KEY, "key: what a position is found by"),
        (592, VALUE, "value: what a position passes on"),
    ):
        parts.append(f'<rect x="{x}" y="{y - 12}" width="{BOX}" height="{BOX}" fill="{colour}"/>')
        parts.append(_text(x + 24, y, meaning, "left"))
    seen = [f"{weights[s]:.2f} · value of {LABELS[s]}" for s in range(SHOWN + 1)]
    sentence = (
        f"The query of {LABELS[SHOWN]} is compared with the keys of {', '.join(LABELS[:SHOWN])} and {LABELS[SHOWN]}; "
        f"{' and '.join(LABELS[SHOWN + 1 :])} is the future, so it is masked."
    )
    parts.append(f'<text class="left" x="20" y="{y + 32}"><tspan class="strong">Framed row.</tspan> {sentence}</text>')
    return [*parts, _text(20, y + 56, f"Output of {LABELS[SHOWN]} = {' + '.join(seen)}", "left")]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = CommandParser(prog="experiments.attention_picture", description=__doc__)
    default = Path("attention_picture.svg")
    parser.add_argument("--output", type=Path, default=default, metavar="FILE", help="the SVG to write (%(default)s)")
    options = parser.parse_args(arguments)
    return tell_mistakes("experiments.attention_picture", lambda: run(options.output), memory="close other programs")


def run(output: Path) -> int:
    output.write_text(picture(), encoding="utf-8")
    print(f"Drew {output}")
    return 0


if __name__ == "__main__":
    run_command(main)
