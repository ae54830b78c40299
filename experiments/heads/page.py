"""The page of a checkpoint: attention over a text, the targets and importance of heads, and similar characters."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from experiments.drawing import Chart
from experiments.heads.analysis import Analysis
from experiments.heads.measures import EXPLAINED_TARGETS, TARGETS
from experiments.heads.passages import NEAREST, Passage
from experiments.heads.table import table_rows
from experiments.heads.viewer import viewer_data, visible
from experiments.html import render
from training.trained_model import TrainedModel

BEFORE, AFTER = 16, 3  # characters shown around each character of a passage


@dataclass(frozen=True)
class AnalysedModel:
    """A model as its page shows it: with its analysis, and attention weights (N, T, T) for a text as ids (T,).

    letter: A or B if two models are compared, or "".
    """

    opened: TrainedModel
    analysis: Analysis
    ids: np.ndarray
    weights: Tensor
    charts: Sequence[Chart]
    letter: str

    @property
    def about(self) -> str:
        checkpoint, config = self.opened.checkpoint, self.opened.model.config
        return (
            f"{self.opened.path}, trained on {checkpoint.corpus['name']}, step {checkpoint.step:,}: {config.n_layer} "
            f"layers, {len(self.analysis.heads)} heads in all, width {config.n_embd}."
        )

    @property
    def viewer(self) -> dict[str, Any]:
        return viewer_data(self.analysis.heads, self.opened.vocabulary, self.ids, self.weights)

    @cached_property
    def table(self) -> list[dict[str, str]]:
        return table_rows(self.analysis)

    @property
    def passages(self) -> dict[str, list[list[tuple[str, str]]]]:
        def label(character: str) -> str:
            return visible(character, self.opened.vocabulary.unit)

        each = zip(self.analysis.heads, self.analysis.passages, strict=True)
        return {str(head): [pieces(passage, label) for passage in passages] for head, passages in each}


def make_page(models: Sequence[AnalysedModel]) -> str:
    """Return the HTML that shows one model or two on the same text."""
    return render(
        "heads/heads.html",
        title="Inside the attention heads",
        models=models,
        targets=TARGETS,
        explained_targets=EXPLAINED_TARGETS,
        nearest=NEAREST,
    )


def pieces(passage: Passage, label: Callable[[str], str]) -> list[tuple[str, str]]:
    """Return the surroundings of a passage's two characters as texts, each with the class of its mark, or ""."""
    key, query = passage.key, passage.query
    shown = [("", label(character)) for character in passage.text[: query + AFTER + 1]]
    shown[key], shown[query] = ("key", shown[key][1]), ("query", shown[query][1])
    if gap := range(key + AFTER + 1, query - BEFORE):
        shown[gap.start : gap.stop] = [("weight", f" ({len(gap):,} characters) ")]
    return [*shown[max(0, key - BEFORE) :], ("weight", f" {passage.weight:.2f}")]
