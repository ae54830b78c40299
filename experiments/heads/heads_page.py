"""The page of a checkpoint: attention over a text, and the targets and importance of heads."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from experiments.drawing import INK, Chart, draw_svg, line_style
from experiments.formatting import visible
from experiments.heads.analysis import Analysis
from experiments.heads.heads_table import table_rows
from experiments.heads.measures import TARGETS
from experiments.heads.passages import NEAREST, Passage
from experiments.playground.models import make_page
from training.trained_model import TrainedModel

BEFORE, AFTER = 16, 3  # characters shown around each character of a passage
MOST_NAMED_HEADS = 40


def make_heads_page(opened: Sequence[TrainedModel], analyses: Sequence[Analysis], text: str | None) -> str:
    """Return the HTML of one model or two: the playground, and tables of what the heads do."""
    letters = "AB" if len(opened) > 1 else [""]
    return make_page(
        opened,
        text=text,
        measures=[analysis.measures for analysis in analyses],
        template="heads/heads.html",
        title="Inside the attention heads",
        models=[describe(*each) for each in zip(opened, analyses, letters, strict=True)],
        targets=TARGETS,
        nearest=NEAREST,
    )


def describe(opened: TrainedModel, analysis: Analysis, letter: str) -> dict[str, Any]:
    """Return the tables and charts of a model. letter: A or B if two models are compared, or ""."""
    passages = zip(analysis.heads, analysis.passages, strict=True)
    return {
        "letter": letter,
        "analysis": analysis,
        "table": table_rows(analysis),
        "passages": {head: [pieces(each, opened.vocabulary.unit) for each in found] for head, found in passages},
        "charts": draw_charts(analysis, letter),
    }


def pieces(passage: Passage, unit: str) -> list[tuple[str, str]]:
    """Return the surroundings of a passage's two characters: the class of its mark, or "", and the label of each."""
    key, query = passage.key, passage.query
    shown = [("", visible(character, unit)) for character in passage.text[: query + AFTER + 1]]
    shown[key], shown[query] = ("key", shown[key][1]), ("query", shown[query][1])
    if gap := range(key + AFTER + 1, query - BEFORE):
        shown[gap.start : gap.stop] = [("weight", f" ({len(gap):,} characters) ")]
    return [*shown[max(0, key - BEFORE) :], ("weight", f" {passage.weight:.2f}")]


def draw_charts(analysis: Analysis, name: str) -> list[Chart]:
    """Return the charts of a model. name: unique on the page."""
    charts = {
        "Loss without one head": (
            "Increase of the validation loss with only this head silenced, with its standard error.",
            _importance,
        ),
        "Loss without several heads": ("Silenced one after another, the least important first.", _cumulative),
    }
    return [
        Chart(title, title, caption, draw_svg(f"{name} {title}", partial(draw, analysis=analysis)))
        for title, (caption, draw) in charts.items()
    ]


def _importance(axes, analysis: Analysis) -> None:
    order = analysis.order[::-1]
    increases, errors = zip(*(analysis.increases[head] for head in order), strict=True)
    axes.bar(range(len(order)), increases, yerr=errors, color="C0", ecolor=INK)
    names = list(map(str, order)) if len(order) <= MOST_NAMED_HEADS else []
    axes.set_xticks(range(len(names)), names, rotation=90)
    axes.set(xlabel="silenced head", ylabel="loss increase, nats per character")


def _cumulative(axes, analysis: Analysis) -> None:
    losses = [analysis.evaluation.loss, *analysis.cumulative]
    axes.plot(range(len(losses)), losses, **line_style(0) | {"markersize": 4})
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set(xlabel="number of silenced heads, least important first", ylabel="validation loss, nats per character")
