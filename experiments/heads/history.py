"""How the heads of a run change while it trains, from the weights that it kept: their measures, and the page."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from data.batches import Ids
from experiments.drawing import INK, draw_svg
from experiments.heads.measures import EXPLAINED_TARGETS, TARGETS, measure_heads
from experiments.heads.model_access import HeadIndex, all_heads, read_windows, scales_of
from experiments.pages import render
from training.evaluation import evaluate
from training.runs.checkpoint import load_checkpoint
from training.runs.run_folder import RunFolder
from training.runtime import Runtime

PLOT_HEIGHT = 1.75  # inches
TITLES = {name: f"weight {name}" for name in TARGETS} | {  # of the plots, by figure
    "entropy, bits": "entropy of the weights, bits",
    "characters back": "mean distance, characters",
    "scale": "scale s of the scores",
}


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
        evaluations.append(evaluate(model, ids, runtime, n_characters=n_characters))
    losses, last = [evaluation.loss for evaluation in evaluations], measures[-1]
    series = {name: np.stack([each.figures[name] for each in measures]) for name in TITLES if name in last.figures}
    series = {name: values for name, values in series.items() if np.isfinite(values).all()}
    n_characters = evaluations[-1].n_characters
    return HeadHistory(all_heads(model), list(files), losses, series, last.uniform, n_characters, last.n_characters)


def make_history_page(run: RunFolder, history: HeadHistory) -> str:
    """Return the HTML."""
    rows = len(history.series) + 1
    return render(
        "heads/history.html",
        title="How the attention heads formed",
        path=run.path,
        history=history,
        sentences=appearances(history),
        chart=draw_svg("history", lambda plots: _draw(plots, history), height=PLOT_HEIGHT * rows, rows=rows),
        explained_targets=EXPLAINED_TARGETS,
    )


def appearances(history: HeadHistory) -> list[str]:
    """Return for each target the head that ends with the largest share, and the step by which half of it had formed.

    Half: halfway between the share of a head with equal weights and the last share.
    """
    sentences = []
    for target, uniform in history.uniform.items():
        if target not in history.series:
            continue  # no character of the text has it
        values = history.series[target]
        best, final = int(values[-1].argmax()), float(values[-1].max())
        if final <= uniform:
            continue
        half = (uniform + final) / 2
        # After the last step below half: a share may pass half by chance and fall again.
        step = history.steps[next((i + 1 for i in reversed(range(len(values))) if values[i, best] < half), 0)]
        sentences.append(
            f"Most weight on {TARGETS[target]}: {history.heads[best]}, {final:.2f} at step "
            f"{history.steps[-1]:,} ({uniform:.2f} for a head with equal weights); half of the difference had formed "
            f"by step {step:,}."
        )
    return sentences


def _draw(plots, history: HeadHistory) -> None:
    """Draw the loss and, below it, each measure with one line per head."""
    plots[0].plot(history.steps, history.losses, color=INK, marker=".")
    plots[0].set_title("validation loss, nats per character", loc="left", fontsize=11)
    for plot, (name, values) in zip(plots[1:], history.series.items(), strict=True):
        plot.set_title(TITLES[name], loc="left", fontsize=11)
        if name in TARGETS:
            plot.axhline(history.uniform[name], color=INK, linestyle="--", linewidth=1)
            plot.set_ylim(0, 1.05 * max(0.1, values.max()))
        for head, line in zip(history.heads, values.T, strict=True):
            plot.plot(history.steps, line, color=f"C{head.layer}", linewidth=1.5, gid=f"line {head}")
    for plot in plots:
        plot.tick_params(labelbottom=True)
    last = plots[-1]
    last.set_xscale("symlog", linthresh=1)
    ticks = [0, *(10**k for k in range(9) if 10**k <= history.steps[-1])]
    last.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    last.set_xlim(-0.2, history.steps[-1] * 1.1)
    last.set_xlabel("step")
    for layer in sorted({layer for layer, _ in history.heads}):
        last.plot([], [], color=f"C{layer}", label=f"layer {layer}")
    last.figure.legend(loc="outside upper center", ncols=6)
