"""The page of a checkpoint: attention over a text, the targets and importance of heads, and similar characters."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np
from torch import Tensor

from cli.errors import UserError
from experiments.drawing import SERIES, draw_matrix, draw_svg, line_style, plain
from experiments.formatting import signed
from experiments.heads.analysis import Analysis
from experiments.heads.measures import TARGETS
from experiments.heads.model_access import head_name
from experiments.heads.passages import NEAREST, Passage
from experiments.heads.viewer import make_viewer, visible
from experiments.html_page import make_html
from training.runs.checkpoint import Checkpoint

HERE = Path(__file__).parent
MOST_NAMED_BARS = 40
BEFORE, AFTER = 16, 3  # characters shown around each character of a passage


@dataclass(frozen=True)
class AnalysedModel:
    """A checkpoint, its analysis, and its attention weights (N, T, T) for the page's text of T characters.

    text: one character for each id, see `Vocabulary.spell`; unit: of the vocabulary, see `visible`.
    """

    path: Path
    checkpoint: Checkpoint
    analysis: Analysis
    text: str
    weights: Tensor

    @property
    def unit(self) -> str:
        return self.checkpoint.vocabulary.unit

    @property
    def description(self) -> str:
        config = self.checkpoint.config().model
        return (
            f"{self.path}, trained on {self.checkpoint.corpus['name']}, step {self.checkpoint.step:,}: "
            f"{config.n_layer} layers, {len(self.analysis.heads)} heads, width {config.n_embd}."
        )


def make_page(models: Sequence[AnalysedModel]) -> tuple[str, str]:
    """Return the HTML that shows one model or two on the same text, and the reason if there are no charts, or ""."""
    viewers, parts, missing = "", "", ""
    for i, (letter, model) in enumerate(zip("AB", models, strict=False)):
        suffix = f": model {letter}" if len(models) > 1 else ""
        try:
            charts = _charts(model, i, suffix)
        except UserError as error:
            charts, missing = "", f"no charts: {error}"
        title = f"<h3>Model {letter}</h3>" if suffix else ""
        description = f"<p>{escape(model.description)}</p>"
        viewer = make_viewer(model.analysis.heads, model.text, model.weights, unit=model.unit)
        viewers += f"<section>{title}{description}{viewer}</section>"
        parts += f"""<h2>What each head attends to{suffix}</h2>
{_table(model.analysis)}
<h2>Where each head works hardest{suffix}</h2>
{_passages(model.analysis, model.unit)}
{charts}"""
    body = f"""<p>L0H1 is head 1 of layer 0; both count from 0.</p>
<h2>Attention map</h2>
<p class="faint">Choose a head. Point at a character, or tap it, to see what it attends to. Click to keep the character
selected, and click again to release it. Arrow keys move the selection if the text has the focus. ␣ is a space, ⏎ a new
line. The shading shows the square root of the weight.</p>
<div class="{"pair" if len(models) > 1 else "one"}">{viewers}</div>
{parts}"""
    style, script = ((HERE / file).read_text(encoding="utf-8") for file in ("viewer.css", "viewer.js"))
    return make_html("Inside the attention heads", body, style=style, script=script), missing


def _passages(analysis: Analysis, unit: str) -> str:
    """Return, for each head, the passages in which it attends most strongly to one character."""
    sections = ""
    for head, passages in zip(analysis.heads, analysis.passages, strict=True):
        items = "".join(f"<li>{_marked(passage, unit)}</li>" for passage in passages)
        sections += f"<section><h3>{head_name(head)}</h3><ol>{items}</ol></section>"
    return f"""<p class="faint">For each head, the passages of the validation split with its highest weight on a single
character, at least {NEAREST} characters back. Framed: the character that attends, in the second half of the context
window. Shaded: the one that it attends to, with the weight.</p>
<div class="passages">{sections}</div>"""


def _marked(passage: Passage, unit: str) -> str:
    """Return the surroundings of a passage's two characters, with both marked."""
    T, html, left = len(passage.text), "", 0
    spans = [(max(0, at - BEFORE), min(T, at + AFTER + 1)) for at in (passage.key, passage.query)]
    for i in range(spans[0][0], spans[1][1]):
        if not any(first <= i < last for first, last in spans):
            left += 1
            continue
        if left:
            html, left = f'{html} <span class="weight">({left:,} characters)</span> ', 0
        shown = escape(visible(passage.text[i], unit))
        kind = {passage.key: "key", passage.query: "query"}.get(i)
        html += f'<mark class="{kind}">{shown}</mark>' if kind else shown
    return f'{html} <span class="weight">{passage.weight:.2f}</span>'


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
        cells = _cells([head_name((layer, h)), signed(gain), str(rank)])
        cells += _cells([_number(scale, 1) for scale in analysis.scales[i : i + 1]])
        cells += _cells([_number(float(measures.entropy_bits[i]), 2), _number(float(measures.distance[i]), 1)])
        for name in TARGETS:
            share = float(measures.shares[name][i])
            shade = f' class="shade" style="--v:{share:.3f}"' if share == share else ""
            cells += f"<td{shade}>{_number(share, 2)}</td>"
        if len(analysis.heads) > 1:
            other = int(similar[i].argmax())
            near = head_name(analysis.heads[other])
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


def _charts(model: AnalysedModel, number: int, suffix: str) -> str:
    """Return the charts. number: of the model on the page. suffix: of the titles."""
    analysis, unit = model.analysis, model.unit
    pairs = analysis.similarity.most_alike(8)
    alike = "; ".join(f"{visible(a, unit)} and {visible(b, unit)} {cosine:.2f}" for a, b, cosine in pairs)
    noise = model.checkpoint.config().model.n_embd ** -0.5
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
        svg = draw_svg(f"{draw.__name__}{number}", lambda axes, draw=draw: draw(axes, model), height=height)
        html += f'<h2>{title}{suffix}</h2><p class="faint">{escape(note)}</p><figure>{svg}</figure>'
    return html


def _importance(axes, model: AnalysedModel) -> None:
    analysis = model.analysis
    names = [head_name(head) for head in reversed(analysis.order)]
    gains = [analysis.losses_without[head] - analysis.loss for head in reversed(analysis.order)]
    axes.bar(range(len(gains)), gains, color=SERIES[0])
    labelled = len(names) <= MOST_NAMED_BARS
    axes.set_xticks(range(len(names)) if labelled else [], names if labelled else [], rotation=90)
    axes.set(xlabel="silenced head", ylabel="loss increase, nats per character")


def _cumulative(axes, model: AnalysedModel) -> None:
    losses = [model.analysis.loss, *model.analysis.cumulative]
    axes.plot(range(len(losses)), losses, **line_style(0) | {"markersize": 4})
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set(xlabel="number of silenced heads, least important first", ylabel="validation loss, nats per character")


def _similar_heads(axes, model: AnalysedModel) -> None:
    names = [head_name(head) for head in model.analysis.heads]
    every = -(-len(names) // MOST_NAMED_BARS)
    axes.set_xticks(range(0, len(names), every), names[::every], rotation=90)
    axes.set_yticks(range(0, len(names), every), names[::every])
    cosines = model.analysis.measures.similarity.numpy()
    draw_matrix(axes, cosines, lowest=0, highest=1, label="mean cosine of the weights")


def _similar_characters(axes, model: AnalysedModel) -> None:
    similarity = model.analysis.similarity
    names = [plain(visible(character, model.unit)) for character in similarity.characters]
    size = min(11, 400 / len(names))  # points
    axes.set_xticks(range(len(names)), names, fontsize=size)
    axes.set_yticks(range(len(names)), names, fontsize=size)
    cosines = similarity.cosines.numpy()
    limit = np.abs(cosines - np.eye(len(names))).max() or 1.0  # the diagonal is 1 and says nothing
    draw_matrix(axes, cosines, lowest=-limit, highest=limit, label="cosine of the embeddings")
