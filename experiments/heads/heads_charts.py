"""The charts of a heads page: the importance of heads, and similarities of heads and of characters."""

from functools import partial

import numpy as np

from experiments.drawing import SERIES, Chart, draw_svg, line_style, plain
from experiments.heads.analysis import Analysis
from experiments.heads.viewer import visible

MOST_NAMED_HEADS = 40


def draw_charts(analysis: Analysis, n_embd: int, unit: str, name: str) -> list[Chart]:
    """Return the charts of a model. n_embd, unit: its width, and the unit of its vocabulary. name: unique on the page.

    Raises UserError if matplotlib is not installed.
    """
    similarity = analysis.similarity
    labels = [visible(character, unit) for character in similarity.characters]
    pairs = similarity.most_alike(8)
    alike = "; ".join(f"{visible(a, unit)} and {visible(b, unit)} {cosine:.2f}" for a, b, cosine in pairs)
    characters = (
        f"Cosines between the embeddings of the {len(labels)} most frequent characters: lower case, upper case, other "
        "letters, digits, punctuation, white space. Cosines of random embeddings would have a standard deviation of "
        f"{n_embd**-0.5:.2f}. Most alike: {alike}."
    )
    products = (
        "Dot products of the same embeddings, in which lengths count too: attention compares vectors by dot products, "
        "so a long vector scores high with everything that points its way."
    )

    def cosines_of_characters(axes, analysis: Analysis) -> None:
        cosines = similarity.cosines.numpy()
        limit = np.abs(cosines - np.eye(len(cosines))).max() or 1.0  # the diagonal is 1 and says nothing
        _of_characters(axes, labels, cosines, limit, "cosine of the embeddings")

    def products_of_characters(axes, analysis: Analysis) -> None:
        matrix = similarity.products.numpy()
        _of_characters(axes, labels, matrix, np.abs(matrix).max(), "dot product of the embeddings")

    charts = [
        ("Loss without one head", "Increase of the validation loss with only this head silenced.", _importance, 4.2),
        ("Loss without several heads", "Silenced one after another, the least important first.", _cumulative, 4.2),
        ("Similar heads", "Mean cosine of the attention weights of two heads.", _similar_heads, 6.5),
        ("Similar characters", characters, cosines_of_characters, 6.8),
        ("Dot products of characters", products, products_of_characters, 6.8),
    ]
    return [
        Chart(title, title, caption, draw_svg(f"{name} {title}", partial(draw, analysis=analysis), height=height))
        for title, caption, draw, height in charts
    ]


def _importance(axes, analysis: Analysis) -> None:
    order = analysis.order[::-1]
    axes.bar(range(len(order)), [analysis.losses_without[head] - analysis.loss for head in order], color=SERIES[0])
    names = list(map(str, order)) if len(order) <= MOST_NAMED_HEADS else []
    axes.set_xticks(range(len(names)), names, rotation=90)
    axes.set(xlabel="silenced head", ylabel="loss increase, nats per character")


def _cumulative(axes, analysis: Analysis) -> None:
    losses = [analysis.loss, *analysis.cumulative]
    axes.plot(range(len(losses)), losses, **line_style(0) | {"markersize": 4})
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set(xlabel="number of silenced heads, least important first", ylabel="validation loss, nats per character")


def _similar_heads(axes, analysis: Analysis) -> None:
    names = list(map(str, analysis.heads))
    every = -(-len(names) // MOST_NAMED_HEADS)
    axes.set_xticks(range(0, len(names), every), names[::every], rotation=90)
    axes.set_yticks(range(0, len(names), every), names[::every])
    cosines = analysis.measures.similarity.numpy()
    _matrix(axes, cosines, cmap="viridis", vmin=0, vmax=1, label="mean cosine of the weights")


def _of_characters(axes, labels: list[str], matrix: np.ndarray, limit: float, label: str) -> None:
    names, size = list(map(plain, labels)), min(11, 400 / len(labels))  # points
    axes.set_xticks(range(len(names)), names, fontsize=size)
    axes.set_yticks(range(len(names)), names, fontsize=size)
    _matrix(axes, matrix, cmap="coolwarm", vmin=-limit, vmax=limit, label=label)


def _matrix(axes, matrix: np.ndarray, *, label: str, **colours) -> None:
    # aspect="auto", because the layout cuts off the labels of an image with a fixed shape.
    picture = axes.imshow(matrix, aspect="auto", **colours)
    axes.grid(visible=False)
    axes.figure.colorbar(picture, ax=axes, label=label)
