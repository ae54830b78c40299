"""The page of a checkpoint: attention over real characters, what each head looks at, and what it is worth."""

import base64
import json
import math
from html import escape
from itertools import groupby
from pathlib import Path

import numpy as np
from torch import Tensor

from experiments.drawing import SERIES, draw_svg, line_style
from experiments.heads.analysis import Analysis
from experiments.heads.measures import TARGETS
from experiments.html_page import make_html
from experiments.shown import signed
from training.checkpoint import Checkpoint

HERE = Path(__file__).parent
MOST_NAMED_BARS = 40


def make_page(path: Path, checkpoint: Checkpoint, analysis: Analysis, text: str, weights: Tensor) -> tuple[str, str]:
    """HTML, and why there are no charts, or "". weights (N, T, T): how each head weighs the text's T characters."""
    model = checkpoint.config().model
    try:
        charts, missing = _charts(analysis), ""
    except ValueError as error:
        charts, missing = "", f"no charts: {error}"
    body = f"""<p>{escape(str(path))}, trained on {escape(checkpoint.corpus["name"])}, step {checkpoint.step:,}:
{model.n_layer} layers, {len(analysis.heads)} heads, width {model.n_embd}. L0H1 is head 1 of layer 0; both count from
0.</p>
<h2>What it attends to</h2>
<p class="faint">Choose a head. Point at a character, or tap it, to see what it attends to; a click holds it, another
lets go. Arrow keys move, once the text has the focus. ␣ is a space, ⏎ a new line. Shading goes by the square root of
the weight.</p>
{_viewer(analysis, text, weights)}
<h2>What each head looks at</h2>
{_table(analysis)}
{charts}"""
    style, script = ((HERE / file).read_text(encoding="utf-8") for file in ("viewer.css", "viewer.js"))
    return make_html("Inside the attention heads", body, style=style, script=script), missing


def visible(character: str) -> str:
    """A character as it can be seen."""
    shown = {" ": "␣", "\n": "⏎", "\t": "⇥"}.get(character, character)
    return shown if shown.isprintable() and not shown.isspace() else f"U+{ord(character):04X}"


def pack(weights: Tensor) -> str:
    """Lower triangles of (N, T, T), row by row and head by head, as 65535ths in two bytes each, in base64."""
    _, T, _ = weights.shape
    rows, columns = np.tril_indices(T)
    numbers = np.rint(weights.numpy()[:, rows, columns] * 65535).astype("<u2")
    return base64.b64encode(numbers.tobytes()).decode()


def _viewer(analysis: Analysis, text: str, weights: Tensor) -> str:
    names = [f"L{layer}H{h}" for layer, h in analysis.heads]
    rows = ""
    for _, row in groupby(zip(names, analysis.heads, strict=True), key=lambda item: item[1][0]):
        cells = (f'<button class="head"><canvas></canvas>{head}</button>' for head, _ in row)
        rows += f'<div class="row">{"".join(cells)}</div>'
    spans = ""
    for character in text:
        blank = ' class="blank"' if visible(character) != character else ""
        spans += f"<span{blank}>{escape(visible(character))}</span>{'<br>' if character == chr(10) else ''}"
    shown = [visible(character) for character in text]
    data = json.dumps({"characters": list(text), "shown": shown, "heads": names, "weights": pack(weights)})
    return f"""<div class="viewer">
<div class="grid">{rows}</div>
<div>
<div id="text" tabindex="0" role="application" aria-label="the text, character by character">{spans}</div>
<p id="looking" aria-live="polite"></p><ol id="keys"></ol>
<div id="frame"><canvas id="map"></canvas><div id="row"></div></div>
<p class="faint">The whole map of this head: each row is a character, each column one that it can see. <span
id="place"></span></p>
</div></div>
<script type="application/json" id="attention-data">{data.replace("<", chr(92) + "u003c")}</script>"""


def _table(analysis: Analysis) -> str:
    """A row for each head, in order; above them what a head of uniform weights would have."""
    statistics = analysis.statistics
    similar = statistics.similarity.clone().fill_diagonal_(-math.inf)
    head = ["head", "loss without it", "rank", "entropy, bits", "characters back"]
    head = [*head, *(f"on {name}" for name in TARGETS), "most similar"]
    lowest = [_number(statistics.uniform[name], 2) for name in TARGETS]
    rows = f'<tr class="faint">{_cells(["uniform", "", "", "", "", *lowest, ""])}</tr>'
    for i, (layer, h) in enumerate(analysis.heads):
        gain = analysis.losses_without[layer, h] - analysis.loss
        rank = len(analysis.order) - analysis.order.index((layer, h))
        cells = _cells([f"L{layer}H{h}", signed(gain), str(rank)])
        cells += _cells([_number(statistics.entropy_bits[i], 2), _number(statistics.distance[i], 1)])
        for name in TARGETS:
            share = float(statistics.shares[name][i])
            shade = f' class="shade" style="--v:{share:.3f}"' if share == share else ""
            cells += f"<td{shade}>{_number(share, 2)}</td>"
        if len(analysis.heads) > 1:
            other = int(similar[i].argmax())
            near = "L{}H{}".format(*analysis.heads[other])
            cells += f"<td>{near} ({similar[i, other]:.2f})</td>"
        rows += f"<tr>{cells}</tr>"
    titles = "".join(f'<th title="{escape(TARGETS.get(name[3:], ""))}">{escape(name)}</th>' for name in head)
    means = "; ".join(f"on {name}: {meaning}" for name, meaning in TARGETS.items())
    return f"""<div class="wide"><table><thead><tr>{titles}</tr></thead><tbody>{rows}</tbody></table></div>
<p class="faint">Loss without it: how much the validation loss rises when this head alone is silenced; the whole network
has {analysis.loss:.4f} nats per character over {analysis.n_characters:,} characters. Rank 1 is the most important. The
other columns are means over {statistics.n_characters:,} characters of the validation split, those that begin a window
left out: entropy of the weights, mean distance looked back, and shares of the weight, over the characters that have
such a target in their window; "none" where no character has. {escape(means)}. Uniform: what a head would have that
looks alike at all it sees; only more than that means something. Most similar: mean cosine of the
weights.</p>"""


def _cells(values: list[str]) -> str:
    return "".join(f"<td>{escape(value)}</td>" for value in values)


def _number(value: float, digits: int) -> str:
    return "none" if value != value else f"{float(value):.{digits}f}"


def _charts(analysis: Analysis) -> str:
    figures = [
        ("Loss without one head", draw_svg("importance", lambda axes: _importance(axes, analysis))),
        (
            "Loss without the least important heads, one more each time",
            draw_svg("cumulative", lambda axes: _cumulative(axes, analysis)),
        ),
        ("How similar heads are", draw_svg("similarity", lambda axes: _similarity(axes, analysis), height=6.5)),
    ]
    return "".join(f"<h2>{title}</h2><figure>{svg}</figure>" for title, svg in figures)


def _importance(axes, analysis: Analysis) -> None:
    names = ["L{}H{}".format(*head) for head in reversed(analysis.order)]
    gains = [analysis.losses_without[head] - analysis.loss for head in reversed(analysis.order)]
    axes.bar(range(len(gains)), gains, color=SERIES[0])
    labelled = len(names) <= MOST_NAMED_BARS
    axes.set_xticks(range(len(names)) if labelled else [], names if labelled else [], rotation=90)
    axes.set(xlabel="head silenced", ylabel="rise of the validation loss, nats")


def _cumulative(axes, analysis: Analysis) -> None:
    losses = [analysis.loss, *analysis.cumulative]
    axes.plot(range(len(losses)), losses, **line_style(0) | {"markersize": 4})
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set(xlabel="heads silenced, from the least important on", ylabel="validation loss, nats per character")


def _similarity(axes, analysis: Analysis) -> None:
    names = ["L{}H{}".format(*head) for head in analysis.heads]
    picture = axes.imshow(analysis.statistics.similarity.numpy(), cmap="viridis", vmin=0, vmax=1)
    every = -(-len(names) // MOST_NAMED_BARS)
    axes.set_xticks(range(0, len(names), every), names[::every], rotation=90)
    axes.set_yticks(range(0, len(names), every), names[::every])
    axes.grid(visible=False)
    axes.figure.colorbar(picture, ax=axes, label="mean cosine of the weights")
