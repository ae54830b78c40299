"""Charts with matplotlib, which training and sampling do not need.

Charts for pages take their colours from the page, light or dark. Lines differ in marker and dash as well as in colour.
The hues are those of Okabe and Ito (2008), which are distinct for every type of colour vision; their lightness is
adapted to each background.
"""

import html
import io
import json
import re
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cli.errors import UserError
from cli.optional import load_pyplot

# Placeholder colours of the charts, each of which becomes a CSS variable of the page.
INK, LINE = "#010203", "#040506"
SERIES = [f"#0a0b{i:02x}" for i in range(8)]
_VARIABLES = {INK: "ink", LINE: "line"} | {colour: f"series-{i}" for i, colour in enumerate(SERIES)}
_MARKERS, _DASHES = "osD^vPX*", ["-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)), (0, (3, 1, 1, 1)), (0, (8, 3))]


@dataclass(frozen=True)
class Chart:
    """A chart for a page. name: short, for a file name. caption: how to read it."""

    name: str
    title: str
    caption: str
    svg: str


def draw_if_possible(draw: Callable[[], list[Chart]]) -> list[Chart]:
    """Return the charts that a function draws; without matplotlib, say so and return none."""
    try:
        return draw()
    except UserError as error:
        print(f"no charts: {error}", file=sys.stderr)
        return []


def line_style(i: int) -> dict:
    """Return colour, marker and dash of the i-th line of a chart."""
    marker, dash = _MARKERS[(i + i // 8) % 8], _DASHES[(i + 3 * (i // 8)) % 8]
    return {"color": SERIES[i % 8], "marker": marker, "linestyle": dash, "markersize": 6}


def plain(label: str) -> str:
    """Escape a label so that matplotlib draws it literally: not as a formula, and not hidden from legends."""
    label = label.replace("$", r"\$")
    return f"\N{ZERO WIDTH SPACE}{label}" if label.startswith("_") else label


def draw_svg(name: str, draw: Callable, *, height: float = 4.2, rows: int = 1) -> str:
    """Return the SVG of what `draw(axes)` draws, for a page.

    name: unique on the page. height: in inches, of a width of 8. rows: with several, `axes` is an array of so many
    plots, one below the other, with a common x-axis. The part with the gid "class:NAMES" gets these CSS classes.
    """
    pyplot = load_pyplot()
    ink = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    settings = dict.fromkeys(ink, INK) | {
        "svg.fonttype": "none",
        "svg.hashsalt": name,  # reproducible ids, unique on the page
        "font.family": "sans-serif",
        "font.size": 11,
        "grid.color": LINE,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "legend.frameon": False,
    }
    with pyplot.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+ .*missing")  # the browser draws the text with its own fonts
        figure, axes = pyplot.subplots(rows, figsize=(8, height), layout="constrained", sharex=True)
        for plot in np.ravel(axes):
            plot.grid(axis="y", linewidth=0.8)
            plot.ticklabel_format(useOffset=False)
        draw(axes)
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        points = [point for plot in np.ravel(axes) for point in _labelled_points(plot)]
        pyplot.close(figure)
    svg = out.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="class:([^"]*)"', r'<g class="\1"', svg)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)  # repeated in every chart, and never referenced
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r'\1 width="100%" role="img"', svg)
    if points:
        svg = svg.replace("<svg", f'<svg data-points="{html.escape(json.dumps(points))}"', 1)
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, f"var(--{variable})")
    return svg


def _labelled_points(plot) -> list[tuple[float, float, str]]:
    """Return the visible points of lines with a label, in the units of the SVG and in words, for curves.js."""
    found, scale, quantity = [], 72 / plot.figure.dpi, plot.get_ylabel().partition(",")[0]
    for line in plot.get_lines():
        places = line.get_transform().transform(line.get_xydata())
        for (x, y), value in zip(places, line.get_xydata(), strict=True):
            if not line.get_label().startswith("_") and plot.bbox.contains(x, y):
                label = line.get_label().replace(r"\$", "$")
                shown = f"{label}: {plot.get_xlabel()} {value[0]:,g}, {quantity} {value[1]:.4f}"
                found.append((round(x * scale, 1), round((plot.figure.bbox.height - y) * scale, 1), shown))
    return found


def stand_alone(svg: str) -> str:
    """Return a chart as a stand-alone file with the colours of a page, light and dark."""
    palette = Path(__file__).with_name("palette.css").read_text(encoding="utf-8")
    return svg.replace(">", f"><style>\n{palette} svg {{ background: var(--ground) }}</style>", 1)
