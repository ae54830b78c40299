"""The page of a checkpoint: attention over a text, the targets and importance of heads, and similar characters."""

import base64
import json
import math
from html import escape
from itertools import groupby
from pathlib import Path

import numpy as np
from torch import Tensor

from experiments.drawing import SERIES, draw_matrix, draw_svg, line_style, plain
from experiments.formatting import signed
from experiments.heads.analysis import Analysis
from experiments.heads.measures import TARGETS
from experiments.html_page import make_html
from training.checkpoint import Checkpoint

HERE = Path(__file__).parent
MOST_NAMED_BARS = 40


def make_page(path: Path, checkpoint: Checkpoint, analysis: Analysis, text: str, weights: Tensor) -> tuple[str, str]:
    """Return the HTML, and the reason if there are no charts, or "". weights (N, T, T): for the text's T characters."""
    model = checkpoint.config().model
    try:
        charts, missing = _charts(analysis, model.n_embd), ""
    except ValueError as error:
        charts, missing = "", f"no charts: {error}"
    body = f"""<p>{escape(str(path))}, trained on {escape(checkpoint.corpus["name"])}, step {checkpoint.step:,}:
{model.n_layer} layers, {len(analysis.heads)} heads, width {model.n_embd}. L0H1 is head 1 of layer 0; both count from
0.</p>
<h2>Attention map</h2>
<p class="faint">Choose a head. Point at a character, or tap it, to see what it attends to. Click to keep the character
selected, and click again to release it. Arrow keys move the selection if the text has the focus. ␣ is a space, ⏎ a new
line. The shading shows the square root of the weight.</p>
{_viewer(analysis, text, weights)}
<h2>What each head attends to</h2>
{_table(analysis)}
{charts}"""
    style, script = ((HERE / file).read_text(encoding="utf-8") for file in ("viewer.css", "viewer.js"))
    return make_html("Inside the attention heads", body, style=style, script=script), missing


def visible(character: str) -> str:
    """Return a visible form of a character."""
    shown = {" ": "␣", "\n": "⏎", "\t": "⇥"}.get(character, character)
    return shown if shown.isprintable() and not shown.isspace() else f"U+{ord(character):04X}"


def pack(weights: Tensor) -> str:
    """Return the lower triangles of (N, T, T), head by head and row by row, as 16-bit fractions in base64."""
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
<p class="faint">The whole map of this head. Each row is a character, and each column a character that it can see. <span
id="place"></span></p>
</div></div>
<script type="application/json" id="attention-data">{data.replace("<", chr(92) + "u003c")}</script>"""


def _table(analysis: Analysis) -> str:
    """Return a table with a row for a head with uniform weights, then one row per head."""
    measures = analysis.measures
    similar = measures.similarity.clone().fill_diagonal_(-math.inf)
    head = ["head", "loss increase", "rank", *["scale"] * bool(analysis.scales), "entropy, bits", "characters back"]
    blank = [""] * (len(head) - 1)
    head = [*head, *(f"on {name}" for name in TARGETS), "most similar"]
    lowest = [_number(measures.uniform[name], 2) for name in TARGETS]
    rows = f'<tr class="faint">{_cells(["uniform", *blank, *lowest, ""])}</tr>'
    for i, (layer, h) in enumerate(analysis.heads):
        gain = analysis.losses_without[layer, h] - analysis.loss
        rank = len(analysis.order) - analysis.order.index((layer, h))
        cells = _cells([f"L{layer}H{h}", signed(gain), str(rank)])
        cells += _cells([_number(scale, 1) for scale in analysis.scales[i : i + 1]])
        cells += _cells([_number(float(measures.entropy_bits[i]), 2), _number(float(measures.distance[i]), 1)])
        for name in TARGETS:
            share = float(measures.shares[name][i])
            shade = f' class="shade" style="--v:{share:.3f}"' if share == share else ""
            cells += f"<td{shade}>{_number(share, 2)}</td>"
        if len(analysis.heads) > 1:
            other = int(similar[i].argmax())
            near = "L{}H{}".format(*analysis.heads[other])
            cells += f"<td>{near} ({similar[i, other]:.2f})</td>"
        rows += f"<tr>{cells}</tr>"
    titles = "".join(f'<th title="{escape(TARGETS.get(name[3:], ""))}">{escape(name)}</th>' for name in head)
    means = "; ".join(f"on {name}: {meaning}" for name, meaning in TARGETS.items())
    scale = "Scale: s in the head's scores, s cos(q, k)." if analysis.scales else ""
    return f"""<div class="wide"><table><thead><tr>{titles}</tr></thead><tbody>{rows}</tbody></table></div>
<p class="faint">Loss increase: how much the validation loss rises with only this head silenced (its output set to
zero); the whole model has {analysis.loss:.4f} nats per character over {analysis.n_characters:,} characters. Rank 1 is
the most important head. {scale} The other columns are means over {measures.n_characters:,} characters of the validation
split, without the first of each window: the entropy of the weights, the mean distance that the head looks back, and its
weight on each target, over the characters that have such a target in their window ("none" if no character has one).
{escape(means)}. Uniform: a head with equal weights on all visible characters; a head prefers a target only if its share
is larger. Most similar: the head with the highest mean cosine of the weights.</p>"""


def _cells(values: list[str]) -> str:
    return "".join(f"<td>{escape(value)}</td>" for value in values)


def _number(value: float, digits: int) -> str:
    return "none" if value != value else f"{value:.{digits}f}"


def _charts(analysis: Analysis, width: int) -> str:
    pairs = analysis.similarity.most_alike(8)
    alike = "; ".join(f"{visible(a)} and {visible(b)} {cosine:.2f}" for a, b, cosine in pairs)
    noise = width**-0.5
    n_shown = len(analysis.similarity.characters)
    characters = (
        f"Cosines between the embeddings of the {n_shown} most frequent characters: lower case, upper case, other "
        "letters, digits, punctuation, white space. Cosines of random embeddings would have a standard deviation of "
        f"{noise:.2f}. Most alike: {alike}."
    )
    figures = [
        ("Loss without one head", "Increase of the validation loss with only this head silenced.", _importance, 4.2),
        ("Loss without several heads", "Silenced one after another, the least important first.", _cumulative, 4.2),
        ("Similar heads", "Mean cosine of the attention weights of two heads.", _similar_heads, 6.5),
        ("Similar characters", characters, _similar_characters, 6.8),
    ]
    html = ""
    for title, note, draw, height in figures:
        svg = draw_svg(draw.__name__, lambda axes, draw=draw: draw(axes, analysis), height=height)
        html += f'<h2>{title}</h2><p class="faint">{escape(note)}</p><figure>{svg}</figure>'
    return html


def _importance(axes, analysis: Analysis) -> None:
    names = ["L{}H{}".format(*head) for head in reversed(analysis.order)]
    gains = [analysis.losses_without[head] - analysis.loss for head in reversed(analysis.order)]
    axes.bar(range(len(gains)), gains, color=SERIES[0])
    labelled = len(names) <= MOST_NAMED_BARS
    axes.set_xticks(range(len(names)) if labelled else [], names if labelled else [], rotation=90)
    axes.set(xlabel="silenced head", ylabel="increase of the validation loss, nats per character")


def _cumulative(axes, analysis: Analysis) -> None:
    losses = [analysis.loss, *analysis.cumulative]
    axes.plot(range(len(losses)), losses, **line_style(0) | {"markersize": 4})
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set(xlabel="number of silenced heads, least important first", ylabel="validation loss, nats per character")


def _similar_heads(axes, analysis: Analysis) -> None:
    names = ["L{}H{}".format(*head) for head in analysis.heads]
    every = -(-len(names) // MOST_NAMED_BARS)
    axes.set_xticks(range(0, len(names), every), names[::every], rotation=90)
    axes.set_yticks(range(0, len(names), every), names[::every])
    draw_matrix(axes, analysis.measures.similarity.numpy(), lowest=0, highest=1, label="mean cosine of the weights")


def _similar_characters(axes, analysis: Analysis) -> None:
    names = [plain(visible(character)) for character in analysis.similarity.characters]
    size = min(11, 400 / len(names))  # points
    axes.set_xticks(range(len(names)), names, fontsize=size)
    axes.set_yticks(range(len(names)), names, fontsize=size)
    cosines = analysis.similarity.cosines.numpy()
    limit = np.abs(cosines - np.eye(len(names))).max() or 1.0  # the diagonal is 1 and says nothing
    draw_matrix(axes, cosines, lowest=-limit, highest=limit, label="cosine of the embeddings")
