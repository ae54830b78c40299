"""The charts of a heads page: the importance of heads."""

from functools import partial

from experiments.drawing import SERIES, Chart, draw_svg, line_style
from experiments.heads.analysis import Analysis

MOST_NAMED_HEADS = 40


def draw_charts(analysis: Analysis, name: str) -> list[Chart]:
    """Return the charts of a model. name: unique on the page.

    Raises UserError if matplotlib is not installed.
    """
    charts = {
        "Loss without one head": ("Increase of the validation loss with only this head silenced.", _importance),
        "Loss without several heads": ("Silenced one after another, the least important first.", _cumulative),
    }
    return [
        Chart(title, title, caption, draw_svg(f"{name} {title}", partial(draw, analysis=analysis)))
        for title, (caption, draw) in charts.items()
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
