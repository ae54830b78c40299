"""Draw the pictures of textbook/README.md, with numbers of chapters 3 to 5: python -m textbook.pictures

Their style is that of head.svg.
"""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from torch import Tensor

from textbook import chapter3_head, chapter5_layer

FOLDER, ROW = Path(__file__).parent, 28  # pixels
BLUE, ORANGE, GREEN, PINK, OCHRE, BROWN, INK = (f"var(--series-{i})" for i in (0, 1, 2, 3, 4, 7, 6))


def shown(chapter: ModuleType, *titles: str) -> list[Tensor]:
    """Return the first matrix that a chapter shows under a title with each beginning."""
    items = [item for item in chapter.show() if not isinstance(item, str)]
    return [next(value for name, value in items if name.startswith(title)) for title in titles]


def text(x: float, y: float, words: str, style: str = "note") -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{style}">{words}</text>'


def arrow(x: float, y: float, to_x: float, to_y: float, words: str = "") -> str:
    return f'<path class="arrow" d="M{x:g} {y:g}L{to_x:g} {to_y:g}"/>' + text((x + to_x) / 2, (y + to_y) / 2 - 8, words)


def matrix(
    x: float, y: float, values: Tensor, title: str, colour: str, width: int, *, rows=(), columns=(), mask=False
) -> str:
    """Draw a matrix below and right of (x, y): the larger a number, the darker; with mask, zeros are hatched.

    rows and columns are names. Square cells have no numbers.
    """
    parts = [text(x + values.size(1) * width / 2, y - (26 if columns else 10), title, "title")]
    parts += [text(x - 8, y + ROW * (i + 0.65), name, "note end") for i, name in enumerate(rows)]
    parts += [text(x + width * (j + 0.5), y - 8, name) for j, name in enumerate(columns)]
    digits = 0 if (values == values.round()).all() else 2
    darkest = (0.4 if colour == INK else 0.6) / max(1.0, values.abs().max().item())
    for (i, j), number in np.ndenumerate(values.numpy()):
        left, top, is_hidden = x + j * width, y + i * ROW, mask and number == 0
        fill = 'class="future"' if is_hidden else f'fill="{colour}" fill-opacity="{darkest * abs(number):.2f}"'
        parts.append(f'<rect x="{left:g}" y="{top:g}" width="{width}" height="{ROW}" stroke="var(--line)" {fill}/>')
        if width > ROW and not is_hidden:
            written = f"{number:z.{digits}f}".replace("-", "\N{MINUS SIGN}")
            parts.append(text(left + width / 2, top + 0.68 * ROW, written, "number"))
    return "\n".join(parts)


# Each returns a title, the width and height, and the parts.
def one_head() -> tuple[str, int, int, list[str]]:
    words = chapter3_head.WORDS
    titles = ("X = ", "Q = ", "K = ", "V = ", "scores = ", "weights = ", "output = ")
    x, q, k, v, scores, weights, output = shown(chapter3_head, *titles)
    parts = [matrix(70, 180, x, "X", INK, 36, rows=words)]
    for name, values, colour, y in (("Q", q, BLUE, 50), ("K", k, ORANGE, 180), ("V", v, GREEN, 320)):
        parts += [matrix(310, y, values, f"{name} = X W{name.lower()}", colour, 36), arrow(222, 222, 302, y + 42)]
    parts.append(matrix(510, 115, scores, "scores = Q Kᵀ / √3", INK, 56, rows=words, columns=words))
    parts += [arrow(424, 92, 460, 140), arrow(424, 222, 460, 174)]
    parts += [matrix(760, 115, weights, "weights", INK, 56, columns=words), arrow(684, 157, 752, 157, "softmax")]
    parts.append(matrix(760, 320, output, "output = weights V", PINK, 56))
    parts += [arrow(844, 205, 844, 290), arrow(424, 362, 752, 362)]
    return "One head, from its input X to its output", 950, 430, parts


def two_heads() -> tuple[str, int, int, list[str]]:
    torch.manual_seed(0)
    (x,), layer = shown(chapter3_head, "X = "), chapter5_layer.MultiHeadAttention(4, 2).double().requires_grad_(False)
    traced = {name: value[0] for name, value in layer.trace(x[None]).items()}
    parts = [matrix(70, 180, x, "X", INK, 36, rows=chapter3_head.WORDS)]
    for h, colour, y in ((0, OCHRE, 70), (1, BROWN, 290)):
        weights, output = traced["weights"][h], traced["heads"][h]
        parts.append(matrix(310, y, weights, f"weights of head {h + 1}", INK, 52))
        parts.append(matrix(550, y, output, f"output of head {h + 1}", colour, 52))
        parts.append(matrix(740 + 104 * h, 180, output, "", colour, 52))  # joined
        parts += [arrow(222, 222, 302, y + 42), arrow(474, y + 42, 542, y + 42, f"· V{'₁₂'[h]}")]
        parts.append(arrow(662, y + 42, 732, 212 + 20 * h))
    parts += [text(844, 170, "joined", "title"), arrow(956, 222, 1022, 222, "· Wᴼ")]
    parts.append(matrix(1030, 180, traced["output"], "output", PINK, 52))
    return "Two heads side by side, joined by the last map", 1260, 400, parts


def source(x: int, y: int, title: str, n: int, *names: str) -> list[str]:
    """Draw a sequence of n vectors, and arrows to what they become."""
    parts, style = [text(x - 12, y + 16, title, "end")], f'fill="{INK}" fill-opacity="0.2" stroke="{INK}"'
    parts += [f'<rect x="{x + 24 * i}" y="{y}" width="24" height="24" {style}/>' for i in range(n)]
    for i, name in enumerate(names):
        parts.append(arrow(x + 24 * n + 6, y + 12, x + 170, y + 12 + 30 * i))
        parts.append(text(x + 178, y + 17 + 30 * i, name, "left"))
    return parts


def masks() -> tuple[str, int, int, list[str]]:
    titles = ("padding mask", "look-ahead mask", "Weights under both", "memory mask", "Weights under this")
    padding, look_ahead, weights, memory, cross = shown(chapter5_layer, *titles)
    parts = [text(320, 30, "Self-attention: x reads itself", "title")]
    parts.append(text(860, 30, "Cross-attention: x reads the memory", "title"))
    parts += source(160, 60, "x", 4, "queries", "keys", "values")
    parts += source(730, 60, "x", 4, "queries") + source(730, 130, "memory", 3, "keys", "values")
    parts.append(matrix(60, 220, padding, "padding mask", INK, 36, mask=True))
    parts.append(matrix(255, 220, look_ahead, "look-ahead mask", INK, 36, mask=True))
    parts.append(matrix(740, 220, memory, "memory mask", INK, 36, mask=True))
    parts += [text(228, 280, "and"), arrow(408, 276, 446, 276), arrow(858, 276, 906, 276)]
    parts.append(matrix(455, 220, weights, "weights in sequence 2", GREEN, 44, mask=True))
    parts.append(matrix(915, 220, cross, "weights", GREEN, 44, mask=True))
    note = "Scores are equal. Rows: queries (of the padding mask: sequences 1 and 2). Columns: keys. Hatched: weight 0."
    return "Self- and cross-attention, and their three masks", 1070, 385, [*parts, text(60, 365, note, "left")]


def patches() -> tuple[str, int, int, list[str]]:
    before, weights, after = shown(chapter5_layer, "A picture", "weights = softmax", "output = ")
    names = ("X1", "X2", "X3", "X4")
    parts = [matrix(40, 60, before, "before", INK, ROW)]
    parts.append(matrix(390, 110, weights, "weights of the patches", GREEN, 52, rows=names, columns=names))
    parts.append(matrix(720, 60, after, "after", INK, ROW))
    parts += [f'<path class="followed" d="M{x + 112} 60v224M{x} 172h224"/>' for x in (40, 720)]
    parts += [text(54 + 112 * (i % 2), 79 + 112 * (i // 2), name) for i, name in enumerate(names)]
    parts += [arrow(280, 172, 350, 172), arrow(612, 172, 706, 172)]
    return "A picture of four patches before and after attention", 980, 310, parts


PICTURES = (one_head, two_heads, masks, patches)


def svg(draw: Callable[[], tuple[str, int, int, list[str]]]) -> str:
    style = (FOLDER / "head.svg").read_text(encoding="utf-8").partition("</title>\n")[2].partition("</defs>")[0]
    title, width, height, parts = draw()
    size = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
    return "\n".join([size, f"<title>{title}</title>", f"{style}</defs>", *parts, "</svg>\n"])


if __name__ == "__main__":
    for draw in PICTURES:
        (FOLDER / f"{draw.__name__}.svg").write_text(svg(draw), encoding="utf-8")
