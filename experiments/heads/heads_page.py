"""The page of a checkpoint: attention over a text, and the targets and importance of heads."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from experiments.drawing import draw_if_possible
from experiments.heads.analysis import Analysis
from experiments.heads.heads_charts import draw_charts
from experiments.heads.heads_table import table_rows
from experiments.heads.measures import EXPLAINED_TARGETS, TARGETS
from experiments.heads.passages import NEAREST, Passage
from experiments.heads.viewer import viewer_data, visible
from experiments.pages import render
from training.evaluation import character_losses
from training.trained_model import TrainedModel, weights_of

BEFORE, AFTER = 16, 3  # characters shown around each character of a passage


def describe(opened: TrainedModel, analysis: Analysis, text: np.ndarray, letter: str) -> dict[str, Any]:
    """Return what the page shows of a model, with its attention to a text as ids (T,).

    letter: A or B if two models are compared, or "". The charts are missing if matplotlib is not installed.
    """
    vocabulary, checkpoint, config = opened.vocabulary, opened.checkpoint, opened.model.config
    about = (
        f"{opened.path}, trained on {checkpoint.corpus['name']}, step {checkpoint.step:,}: {config.n_layer} layers, "
        f"{len(analysis.heads)} heads in all, width {config.n_embd}."
    )
    passages = zip(analysis.heads, analysis.passages, strict=True)
    return {
        "letter": letter,
        "about": about,
        "viewer": viewer_data(
            analysis.heads, vocabulary, text, torch.cat(weights_of(opened.model, text)), analysis.measures
        )
        | {"bits": [None, *(character_losses(opened.model, text, opened.runtime) / math.log(2)).tolist()]},
        "analysis": analysis,
        "table": table_rows(analysis),
        "passages": {head: [pieces(each, vocabulary.unit) for each in found] for head, found in passages},
        "charts": draw_if_possible(lambda: draw_charts(analysis, letter)),
    }


def make_page(models: Sequence[dict[str, Any]]) -> str:
    """Return the HTML that shows one model or two, see `describe`, on the same text."""
    return render(
        "heads/heads.html",
        title="Inside the attention heads",
        models=models,
        targets=TARGETS,
        explained_targets=EXPLAINED_TARGETS,
        nearest=NEAREST,
    )


def pieces(passage: Passage, unit: str) -> list[tuple[str, str]]:
    """Return the surroundings of a passage's two characters: the class of its mark, or "", and the label of each."""
    key, query = passage.key, passage.query
    shown = [("", visible(character, unit)) for character in passage.text[: query + AFTER + 1]]
    shown[key], shown[query] = ("key", shown[key][1]), ("query", shown[query][1])
    if gap := range(key + AFTER + 1, query - BEFORE):
        shown[gap.start : gap.stop] = [("weight", f" ({len(gap):,} characters) ")]
    return [*shown[max(0, key - BEFORE) :], ("weight", f" {passage.weight:.2f}")]
