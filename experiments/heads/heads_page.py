"""The page of a checkpoint: attention over a text, and the targets and importance of heads."""

from collections.abc import Sequence
from typing import Any

from experiments.drawing import draw_if_possible
from experiments.heads.analysis import Analysis
from experiments.heads.heads_charts import draw_charts
from experiments.heads.heads_table import table_rows
from experiments.heads.measures import EXPLAINED_TARGETS, TARGETS
from experiments.heads.passages import NEAREST, Passage
from experiments.heads.viewer import visible
from experiments.pages import render
from experiments.playground.models import Model
from experiments.playground.page import answers
from training.trained_model import TrainedModel

BEFORE, AFTER = 16, 3  # characters shown around each character of a passage


def make_page(opened: Sequence[TrainedModel], analyses: Sequence[Analysis], text: str) -> str:
    """Return the HTML of one model or two: the playground with this text, and tables of what the heads do.

    The charts are missing if matplotlib is not installed.
    """
    letters = "AB" if len(opened) > 1 else [""]
    return render(
        "heads/heads.html",
        title="Inside the attention heads",
        exported=answers([Model(each) for each in opened], text, [analysis.measures for analysis in analyses]),
        models=[describe(*each) for each in zip(opened, analyses, letters, strict=True)],
        targets=TARGETS,
        explained_targets=EXPLAINED_TARGETS,
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
        "charts": draw_if_possible(lambda: draw_charts(analysis, letter)),
    }


def pieces(passage: Passage, unit: str) -> list[tuple[str, str]]:
    """Return the surroundings of a passage's two characters: the class of its mark, or "", and the label of each."""
    key, query = passage.key, passage.query
    shown = [("", visible(character, unit)) for character in passage.text[: query + AFTER + 1]]
    shown[key], shown[query] = ("key", shown[key][1]), ("query", shown[query][1])
    if gap := range(key + AFTER + 1, query - BEFORE):
        shown[gap.start : gap.stop] = [("weight", f" ({len(gap):,} characters) ")]
    return [*shown[max(0, key - BEFORE) :], ("weight", f" {passage.weight:.2f}")]
