"""How the heads of a run change while it trains, from the weights that it kept."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from data.batches import Ids
from experiments.heads.analysis import spread_windows
from experiments.heads.measures import HeadMeasures, HeadTally
from experiments.heads.model_access import HeadIndex, all_heads, scales_of, weights_of
from training.evaluation import evaluate
from training.runs.checkpoint import load_checkpoint
from training.runtime import Runtime


@dataclass(frozen=True)
class HeadHistory:
    """The heads of a run at each of `steps`. The lists have one entry per step.

    losses: nats per character over n_characters. scales: see `scales_of`.
    """

    heads: list[HeadIndex]
    steps: list[int]
    losses: list[float]
    measures: list[HeadMeasures]
    scales: list[list[float]]
    n_characters: int

    def series(self) -> dict[str, np.ndarray]:
        """Return each measure (steps, heads), by name; without those that no character of the text has."""
        first = self.measures[0]
        shares = {f"on {name}": np.array([m.shares[name].tolist() for m in self.measures]) for name in first.shares}
        values = {name: share for name, share in shares.items() if np.isfinite(share).all()}
        values["entropy, bits"] = np.array([m.entropy_bits.tolist() for m in self.measures])
        values["characters back"] = np.array([m.distance.tolist() for m in self.measures])
        return values | ({"scale": np.array(self.scales)} if self.scales[0] else {})


def trace_heads(
    files: Mapping[int, Path], ids: Ids, runtime: Runtime, *, n_windows: int, n_characters: int | None
) -> HeadHistory:
    """Measure the heads of the checkpoints of a run, by step, on the validation split `ids`; see `analyse`."""
    evaluations, measures, scales = [], [], []
    for path in tqdm(files.values(), desc="Measuring heads over training", disable=None, leave=False):
        checkpoint = load_checkpoint(path)
        model = checkpoint.build_model().to(runtime.device)
        heads, block_size = all_heads(model), model.config.block_size
        tally = HeadTally()
        for window in spread_windows(ids, block_size, n_windows):
            tally.add(weights_of(model, window), checkpoint.vocabulary.spell(window.tolist()))
        measures.append(tally.result())
        scales.append(scales_of(model))
        evaluations.append(evaluate(model, ids, block_size, runtime, n_characters=n_characters))
    losses = [evaluation.loss for evaluation in evaluations]
    return HeadHistory(heads, list(files), losses, measures, scales, evaluations[0].n_characters)
