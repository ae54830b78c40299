"""How the heads of a run change while it trains, from the weights that it kept: their measures, and the page."""

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np
from tqdm import tqdm

from data.batches import Ids
from experiments.drawing import INK, SERIES, draw_svg
from experiments.heads.measures import TARGETS, measure_heads
from experiments.heads.model_access import HeadIndex, all_heads, read_windows, scales_of
from experiments.html_page import json_for_script, make_html
from training.evaluation import evaluate
from training.runs.checkpoint import load_checkpoint
from training.runs.run_folder import RunFolder
from training.runtime import Runtime

HERE = Path(__file__).parent
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
        evaluations.append(evaluate(model, ids, model.config.block_size, runtime, n_characters=n_characters))
    losses, last = [evaluation.loss for evaluation in evaluations], measures[-1]
    series = {name: np.stack([each.figures[name] for each in measures]) for name in TITLES if name in last.figures}
    series = {name: values for name, values in series.items() if np.isfinite(values).all()}
    n_characters = evaluations[-1].n_characters
    return HeadHistory(all_heads(model), list(files), losses, series, last.uniform, n_characters, last.n_characters)


def make_history_page(run: RunFolder, history: HeadHistory) -> str:
    """Return the HTML. Raises UserError if matplotlib is not installed."""
    sentences = "".join(f"<li>{escape(sentence)}</li>" for sentence in appearances(history))
    names, rows = list(map(str, history.heads)), len(history.series) + 1
    series = {name: values.tolist() for name, values in history.series.items()}
    data = {"heads": names, "steps": history.steps, "losses": history.losses, "series": series}
    chart = draw_svg("history", lambda plots: _draw(plots, history), height=PLOT_HEIGHT * rows, rows=rows)
    chips = "".join(f'<button class="chip" data-head="{name}">{name}</button>' for name in names)
    body = f"""<p>{escape(str(run.path))}: {len(names)} heads at {len(history.steps)} steps. L0H1 is head 1 of layer 0;
both count from 0.</p>
<ul>{sentences}</ul>
<p class="faint">Choose one or more heads to see them alone; choose them again to release them. Colours stand for
layers. The steps are on a logarithmic scale, because heads form early. Dashed: the weight of a head with equal weights
on all visible characters. All heads are measured with the full context, even if the run trained with shorter ones first
(train.grow_context_at). If the run averages its weights (optim.average_fraction), the heads are those of the averages,
which follow the trained weights with a delay.</p>
<div class="chips">{chips}</div>
<figure class="history">{chart}</figure>
<h2>All heads at one step</h2>
<p><label>Step <output id="step"></output> <input type="range" id="slider" min="0" max="{len(history.steps) - 1}"
value="{len(history.steps) - 1}"></label> Validation loss <output id="loss"></output></p>
<div class="wide"><table id="heads"></table></div>
<p class="faint">Losses in nats per character over {history.n_characters:,} characters of the validation split. The
other figures are means over {history.n_measured:,} of its characters. On a target: the weight on it, over
the characters that have such a target in their window. {escape("; ".join(map(": ".join, TARGETS.items())))}.</p>
<script type="application/json" id="history-data">{json_for_script(data)}</script>"""
    style, script = ((HERE / file).read_text(encoding="utf-8") for file in ("history.css", "history.js"))
    return make_html("How the attention heads formed", body, style=style, script=script)


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
            colour = SERIES[head.layer % len(SERIES)]
            plot.plot(history.steps, line, color=colour, linewidth=1.5, gid=f"class:line {head}")
    for plot in plots:
        plot.tick_params(labelbottom=True)
    last = plots[-1]
    last.set_xscale("symlog", linthresh=1)
    ticks = [0, *(10**k for k in range(9) if 10**k <= history.steps[-1])]
    last.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    last.set_xlim(-0.2, history.steps[-1] * 1.1)
    last.set_xlabel("step")
    for layer in sorted({layer for layer, _ in history.heads}):
        last.plot([], [], color=SERIES[layer % len(SERIES)], label=f"layer {layer}")
    last.figure.legend(loc="outside upper center", ncols=6)
