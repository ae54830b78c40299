"""The picture of one head: five characters, their queries, keys and values, the scores, the weights and the sums."""

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from string import Template

import torch
from torch import Tensor

from cli.errors import UserError
from data.files import replace_text
from experiments.drawing import palette
from model.textbook.chapter3_head import one_head

CHARACTERS = "to\N{OPEN BOX}be"
MINUS = "\N{MINUS SIGN}"
FOLLOWED = 3  # the position whose row is framed
SQUARE, COLUMN, ROW, TOP = 15, 46, 38, 172  # sizes, and the top of the tables
SCORES_X, WEIGHTS_X, OUTPUT_X, QUERY_X = 136, 478, 806, 62


def example_head() -> dict[str, Tensor]:
    """Return every value inside a head of 3 channels with random embeddings and maps, for five characters."""
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(len(CHARACTERS), 4, generator=generator, dtype=torch.float64)
    maps = torch.randn(3, 4, 3, generator=generator, dtype=torch.float64)
    return one_head(x, *maps, visible=torch.ones(len(x), len(x)).tril() == 1)


def draw(path: Path, _options: Namespace) -> None:
    """Write the picture as SVG. Raises UserError for another ending."""
    if path.suffix != ".svg":
        raise UserError(f"{path}: the picture of a head is an SVG file; end the name with .svg")
    template = Template(Path(__file__).with_name("head.svg").read_text(encoding="utf-8"))
    head = example_head()
    weights = head["weights"][FOLLOWED].tolist()
    terms = [f"{w:.2f} · value of {c}" for w, c in zip(weights, CHARACTERS, strict=True) if w > 0]
    total = f"Output of {CHARACTERS[FOLLOWED]} = {' + '.join(terms)}"
    replace_text(path, template.substitute(palette=palette(), cells="\n".join(_cells(head)), sum=total))


def _cells(head: dict[str, Tensor]) -> Iterator[str]:
    n = len(CHARACTERS)
    for i, character in enumerate(CHARACTERS):
        y = TOP + (i + 0.5) * ROW
        yield f'<text x="40" y="{y + 6}" class="character">{character}</text>'
        yield from _vector(head["Q"], i, QUERY_X, y - SQUARE / 2, series=0)
        yield from _vector(head["output"], i, OUTPUT_X, y - SQUARE / 2, series=3)
        for left, vectors, series in ((SCORES_X, head["K"], 1), (WEIGHTS_X, head["V"], 2)):
            x = left + (i + 0.5) * COLUMN
            yield f'<text x="{x}" y="90" class="character">{character}</text>'
            yield from _vector(vectors, i, x - SQUARE / 2, 104, series=series, down=True)
            if i:
                yield f'<rect class="future" x="{left + i * COLUMN}" y="{TOP}" width="{COLUMN}" height="{i * ROW}"/>'
        for j, (score, weight) in enumerate(zip(head["scores"][i].tolist(), head["weights"][i].tolist(), strict=True)):
            x, right = SCORES_X + (j + 0.5) * COLUMN, WEIGHTS_X + j * COLUMN
            shown, hidden = (f"{score:.1f}".replace("-", MINUS), "") if j <= i else (f"{MINUS}∞", " hidden")
            yield f'<text x="{x}" y="{y + 5}" class="number{hidden}">{shown}</text>'
            if j <= i:
                box = f'x="{right + 1}" y="{y - ROW / 2 + 1}" width="{COLUMN - 2}" height="{ROW - 2}"'
                yield f'<rect {box} fill="var(--series-2)" fill-opacity="{0.6 * weight:.2f}"/>'
                yield f'<text x="{right + COLUMN / 2}" y="{y + 5}" class="number">{weight:.2f}</text>'
    for left in (SCORES_X, WEIGHTS_X):
        lines = [f"M{left} {TOP + i * ROW}h{n * COLUMN}M{left + i * COLUMN} {TOP}v{n * ROW}" for i in range(n + 1)]
        yield f'<path class="grid" d="{"".join(lines)}"/>'


def _vector(vectors: Tensor, i: int, x: float, y: float, *, series: int, down: bool = False) -> Iterator[str]:
    """Yield the squares of a vector, from pale for the lowest number of all vectors to full for the highest."""
    shades = (vectors - vectors.min()) / (vectors.max() - vectors.min()) * 0.9 + 0.1
    for c, shade in enumerate(shades[i].tolist()):
        place = f'x="{x + SQUARE * c * (not down)}" y="{y + SQUARE * c * down}" width="{SQUARE}" height="{SQUARE}"'
        colour = f"var(--series-{series})"
        yield f'<rect {place} stroke="{colour}" fill="{colour}" fill-opacity="{shade:.2f}"/>'
