"""The page of a checkpoint: attention over a text, the targets and importance of heads, and similar characters."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np
from torch import Tensor

from cli.errors import UserError
from experiments.drawing import SERIES, draw_svg, line_style, plain
from experiments.heads.analysis import Analysis
from experiments.heads.heads_table import table_rows
from experiments.heads.measures import TARGETS
from experiments.heads.passages import NEAREST, Passage
from experiments.heads.viewer import make_viewer, visible
from experiments.html_page import make_html
from training.trained_model import TrainedModel

HERE = Path(__file__).parent
MOST_NAMED_HEADS = 40  # in a chart
BEFORE, AFTER = 16, 3  # characters shown around each character of a passage


@dataclass(frozen=True)
class AnalysedModel:
    """A model, its analysis, and its attention weights (N, T, T) for the page's text as ids (T,)."""

    opened: TrainedModel
    analysis: Analysis
    ids: np.ndarray
    weights: Tensor

    def label(self, character: str) -> str:
        return visible(character, self.opened.vocabulary.unit)


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
        checkpoint, config, heads = model.opened.checkpoint, model.opened.model.config, model.analysis.heads
        trained = escape(f"{model.opened.path}, trained on {checkpoint.corpus['name']}, step {checkpoint.step:,}")
        size = f"{config.n_layer} layers, {len(heads)} heads in all, width {config.n_embd}"
        viewer = make_viewer(heads, model.opened.vocabulary, model.ids, model.weights)
        viewers += f"<section>{title}<p>{trained}: {size}.</p>{viewer}</section>"
        parts += f"""<h2>What each head attends to{suffix}</h2>
{_table(model.analysis)}
<h2>Where each head works hardest{suffix}</h2>
{_passages(model)}
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


def _passages(model: AnalysedModel) -> str:
    """Return, for each head, the passages in which it attends most strongly to one character."""
    sections = ""
    for head, passages in zip(model.analysis.heads, model.analysis.passages, strict=True):
        items = "".join(f"<li>{_marked(passage, model.label)}</li>" for passage in passages)
        sections += f"<section><h3>{head}</h3><ol>{items}</ol></section>"
    return f"""<p class="faint">For each head, the passages of the validation split with its highest weight on a single
character, at least {NEAREST} characters back. Framed: the character that attends, in the second half of the context
window. Shaded: the one that it attends to, with the weight.</p>
<div class="passages">{sections}</div>"""


def _marked(passage: Passage, label: Callable[[str], str]) -> str:
    """Return the surroundings of a passage's two characters, with both marked."""
    key, query = passage.key, passage.query
    shown = [escape(label(character)) for character in passage.text[: query + AFTER + 1]]
    for kind, place in (("key", key), ("query", query)):
        shown[place] = f'<mark class="{kind}">{shown[place]}</mark>'
    if gap := range(key + AFTER + 1, query - BEFORE):
        shown[gap.start : gap.stop] = [f' <span class="weight">({len(gap):,} characters)</span> ']
    return f'{"".join(shown[max(0, key - BEFORE) :])} <span class="weight">{passage.weight:.2f}</span>'


def _table(analysis: Analysis) -> str:
    """Return a table with a row for a head with uniform weights, then one row per head."""
    uniform, *heads = table_rows(analysis)
    head = "".join(f'<th title="{escape(TARGETS.get(name, ""))}">{escape(name)}</th>' for name in uniform)
    rows = f'<tr class="faint">{"".join(f"<td>{cell}</td>" for cell in uniform.values())}</tr>'
    rows += "".join(f"<tr>{''.join(_cell(*item) for item in row.items())}</tr>" for row in heads)
    targets = escape("; ".join(map(": ".join, TARGETS.items())))
    scale = "Scale: s in the head's scores, s cos(q, k)." if "scale" in uniform else ""
    return f"""<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>
<p class="faint">Loss increase: how much the validation loss rises with only this head silenced (its output set to
zero); the whole model has {analysis.loss:.4f} nats per character over {analysis.n_characters:,} characters. Rank 1 is
the most important head. {scale} The other columns are means over {analysis.measures.n_characters:,} characters of the
validation split, without the first of each window: the entropy of the weights, the mean distance that the head looks
back, and its weight on each target, over the characters that have such a target in their window ("none" if no character
has one). {targets}. Uniform: a head with equal weights on all visible characters; a head prefers a target only if
its share is larger. Most similar: the head with the highest mean cosine of the weights.</p>"""


def _cell(column: str, value: str) -> str:
    shade = f' class="shade" style="--v:{value}"' if column in TARGETS and value != "none" else ""
    return f"<td{shade}>{escape(value)}</td>"


def _charts(model: AnalysedModel, number: int, suffix: str) -> str:
    """Return the charts. number: of the model on the page. suffix: of the titles."""
    similarity, noise = model.analysis.similarity, model.opened.model.config.n_embd**-0.5
    pairs = similarity.most_alike(8)
    alike = "; ".join(f"{model.label(a)} and {model.label(b)} {cosine:.2f}" for a, b, cosine in pairs)
    characters = (
        f"Cosines between the embeddings of the {len(similarity.characters)} most frequent characters: lower case, "
        "upper case, other letters, digits, punctuation, white space. Cosines of random embeddings would have a "
        f"standard deviation of {noise:.2f}. Most alike: {alike}."
    )
    products = (
        "Dot products of the same embeddings, in which lengths count too: attention compares vectors by dot products, "
        "so a long vector scores high with everything that points its way."
    )
    figures = [
        ("Loss without one head", "Increase of the validation loss with only this head silenced.", _importance, 4.2),
        ("Loss without several heads", "Silenced one after another, the least important first.", _cumulative, 4.2),
        ("Similar heads", "Mean cosine of the attention weights of two heads.", _similar_heads, 6.5),
        ("Similar characters", characters, _cosines_of_characters, 6.8),
        ("Dot products of characters", products, _products_of_characters, 6.8),
    ]
    html = ""
    for title, note, draw, height in figures:
        svg = draw_svg(f"{draw.__name__}{number}", lambda axes, draw=draw: draw(axes, model), height=height)
        html += f'<h2>{title}{suffix}</h2><p class="faint">{escape(note)}</p><figure>{svg}</figure>'
    return html


def _importance(axes, model: AnalysedModel) -> None:
    analysis, order = model.analysis, model.analysis.order[::-1]
    axes.bar(range(len(order)), [analysis.losses_without[head] - analysis.loss for head in order], color=SERIES[0])
    names = list(map(str, order)) if len(order) <= MOST_NAMED_HEADS else []
    axes.set_xticks(range(len(names)), names, rotation=90)
    axes.set(xlabel="silenced head", ylabel="loss increase, nats per character")


def _cumulative(axes, model: AnalysedModel) -> None:
    losses = [model.analysis.loss, *model.analysis.cumulative]
    axes.plot(range(len(losses)), losses, **line_style(0) | {"markersize": 4})
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set(xlabel="number of silenced heads, least important first", ylabel="validation loss, nats per character")


def _similar_heads(axes, model: AnalysedModel) -> None:
    cosines, names = model.analysis.measures.similarity.numpy(), list(map(str, model.analysis.heads))
    every = -(-len(names) // MOST_NAMED_HEADS)
    axes.set_xticks(range(0, len(names), every), names[::every], rotation=90)
    axes.set_yticks(range(0, len(names), every), names[::every])
    _matrix(axes, cosines, cmap="viridis", vmin=0, vmax=1, label="mean cosine of the weights")


def _cosines_of_characters(axes, model: AnalysedModel) -> None:
    cosines = model.analysis.similarity.cosines.numpy()
    limit = np.abs(cosines - np.eye(len(cosines))).max() or 1.0  # the diagonal is 1 and says nothing
    _of_characters(axes, model, cosines, limit, label="cosine of the embeddings")


def _products_of_characters(axes, model: AnalysedModel) -> None:
    products = model.analysis.similarity.products.numpy()
    _of_characters(axes, model, products, np.abs(products).max(), label="dot product of the embeddings")


def _of_characters(axes, model: AnalysedModel, matrix: np.ndarray, limit: float, *, label: str) -> None:
    names = [plain(model.label(each)) for each in model.analysis.similarity.characters]
    size = min(11, 400 / len(names))  # points
    axes.set_xticks(range(len(names)), names, fontsize=size)
    axes.set_yticks(range(len(names)), names, fontsize=size)
    _matrix(axes, matrix, cmap="coolwarm", vmin=-limit, vmax=limit, label=label)


def _matrix(axes, matrix: np.ndarray, *, label: str, **colours) -> None:
    # aspect="auto", because the layout cuts off the labels of an image with a fixed shape.
    picture = axes.imshow(matrix, aspect="auto", **colours)
    axes.grid(visible=False)
    axes.figure.colorbar(picture, ax=axes, label=label)
