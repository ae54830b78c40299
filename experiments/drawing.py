"""Charts with matplotlib, in the colours of a page, light or dark.

charts.mplstyle has the style, on top of matplotlib's defaults without the user's matplotlibrc, and the colours of light
pages. palette.css replaces these by the page's colours. Lines differ in marker and dash as well as in colour. The hues
are those of Okabe and Ito (2008), which are distinct for every type of colour vision; their lightness is adapted to
each background.
"""

import html
import io
import json
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib import style
from matplotlib.figure import Figure

from cli.options import MARK
from page.template import style_sheet

HERE = Path(__file__).parent
INK = "#1b1f24"
WIDTH, HEIGHT = 5.4, 4.0  # inches, so that a phone shows letters of 10 pixels
LINE, SIGN = 60, 7  # characters that fit beside each other; the width of the sign before a name in a legend
_MARKERS, _DASHES = "osD^vPX*", ["-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)), (0, (3, 1, 1, 1)), (0, (8, 3))]


@dataclass(frozen=True)
class Chart:
    """A chart for a page. name: short, for a file name, and unique on the page. caption: how to read it."""

    name: str
    title: str
    caption: str
    svg: str


def line_style(i: int) -> dict:
    """Return colour, marker and dash of the i-th line of a chart."""
    marker, dash = _MARKERS[(i + i // 8) % 8], _DASHES[(i + 3 * (i // 8)) % 8]
    return {"color": f"C{i}", "marker": marker, "linestyle": dash}


def add_legend(axes) -> None:
    """Name the lines of a chart below it, in as many columns as fit; each row after the first makes it higher."""
    labels = axes.get_legend_handles_labels()[1]
    n_columns = max(1, min(3, LINE // (max(map(len, labels), default=0) + SIGN)))
    axes.figure.set_figheight(axes.figure.get_figheight() + 0.22 * (math.ceil(len(labels) / n_columns) - 1))
    axes.figure.legend(loc="outside lower center", ncols=n_columns)


def draw_chart(name: str, title: str, caption: str, draw: Callable, *arguments: Any) -> Chart:
    """Return a chart of what `draw(axes, *arguments)` draws."""
    with style.context(["default", HERE / "charts.mplstyle", {"svg.hashsalt": name}]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+ .*missing")  # the browser draws the text with its own fonts
        figure, out = Figure(figsize=(WIDTH, HEIGHT)), io.StringIO()
        axes = figure.subplots()
        draw(axes, *arguments)
        figure.savefig(out, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    points = json.dumps(_labelled_points(axes))
    svg = out.getvalue().partition("<svg")[2].replace('<g id="', '<g class="')  # ids that other charts have too
    named = f'<svg role="img" aria-label="{html.escape(title)}" data-points="{html.escape(points)}"{svg}'
    return Chart(name, title, caption, named)


def _labelled_points(plot) -> list[tuple[float, float, str]]:
    """Return the visible points of lines with a label, in the units of the SVG and in words, for curves.js."""
    found, scale, quantity = [], 72 / plot.figure.dpi, plot.get_ylabel().partition(",")[0]
    for line in plot.get_lines():
        places = line.get_transform().transform(line.get_xydata())
        for (x, y), value in zip(places, line.get_xydata(), strict=True):
            if not line.get_label().startswith("_") and plot.bbox.contains(x, y):
                shown = f"{line.get_label()}: {plot.get_xlabel()} {value[0]:,g}, {quantity} {value[1]:.4f}"
                found.append((round(x * scale, 1), round((plot.figure.bbox.height - y) * scale, 1), shown))
    return found


def stand_alone(svg: str) -> str:
    """Return a chart as a stand-alone file with the colours of a page, light and dark."""
    palette = style_sheet("palette.css")
    return svg.replace(">", f"><!-- {MARK} --><style>\n{palette} svg {{ background: var(--ground) }}</style>", 1)
