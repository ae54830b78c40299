"""How the heads of a run change while it trains, from the weights that it kept."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from data.batches import Ids
from experiments.heads.measures import TARGETS, measure_heads
from experiments.heads.model_access import HeadIndex, all_heads, read_windows, scales_of
from training.evaluation import evaluate
from training.runs.checkpoint import load_checkpoint
from training.runtime import Runtime

FIGURES = (*TARGETS, "entropy, bits", "characters back", "scale")


@dataclass(frozen=True)
class HeadHistory:
    """The heads of a run at each of `steps`.

    losses: one per step, in nats per character over n_characters. series: by name, each figure (steps, heads) over
    n_measured characters, without targets that none of them has. uniform: see `HeadMeasures`.
    """

    heads: list[HeadIndex]
    steps: list[int]
    losses: list[float]
    series: dict[str, np.ndarray]
    uniform: dict[str, float]
    n_characters: int
    n_measured: int


def trace_heads(
    files: Mapping[int, Path], ids: Ids, runtime: Runtime, *, n_windows: int, n_characters: int | None
) -> HeadHistory:
    """Measure the heads of the checkpoints of a run, by step, on the validation split `ids`; see `analyse`."""
    evaluations, measures = [], []
    for path in tqdm(files.values(), desc="Over training", disable=None, leave=False):
        checkpoint = load_checkpoint(path)
        model = checkpoint.build_model().to(runtime.device)
        windows = read_windows(model, checkpoint.vocabulary, ids, n_windows)
        measures.append(measure_heads(windows, scales_of(model)))
        evaluations.append(evaluate(model, ids, model.config.block_size, runtime, n_characters=n_characters))
    losses, last = [evaluation.loss for evaluation in evaluations], measures[-1]
    series = {name: np.stack([each.figures[name] for each in measures]) for name in FIGURES if name in last.figures}
    series = {name: values for name, values in series.items() if np.isfinite(values).all()}
    n_characters = evaluations[-1].n_characters
    return HeadHistory(all_heads(model), list(files), losses, series, last.uniform, n_characters, last.n_characters)
