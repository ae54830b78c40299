"""The charts of a report."""

from statistics import fmean

from experiments.drawing import INK, Chart, add_legend, draw_chart, line_style
from experiments.report.comparison import Comparison
from experiments.report.variants import LONGEST_LABEL, Variant
from experiments.sweep.values import labelled
from training.identity import SEED


def draw_charts(comparison: Comparison, target: float | None = None) -> list[Chart]:
    """Return the charts that apply to these variants, with the time to a target loss if one is given."""
    charts = []
    # The losses of unfinished runs are shown in their curves only.
    if key := main_setting(comparison.finished):
        title = f"Validation loss against {spoken_setting(key)}"
        rings = "; rings mark the means that are not told apart from the lowest" * bool(comparison.not_told_apart)
        caption = f"Mean over seeds, with error bars of one standard error; dots are single seeds{rings}."
        charts.append(draw_chart("loss", title, caption, draw_loss_against, comparison, key))
    if any(len(run.evaluations) > 1 for variant in comparison.comparable for run in variant.runs.values()):
        caption = "Mean over seeds; bands span the lowest to the highest. The steep start is left out."
        charts.append(draw_chart("curves", "Validation loss over the run", caption, _curves, comparison))
    if target:
        caption = "A line for each seed; the dashed line is the loss to reach."
        charts.append(draw_chart("time", "Validation loss over the time", caption, _times, comparison))
    return charts


def spoken_setting(key: str) -> str:
    return "the number of heads" if key == "model.n_head" else key.partition(".")[2]


def main_setting(variants: list[Variant]) -> str | None:
    """Return the first numeric setting that varies, starting with head count and length of training, or None."""
    identities = [variant.first.identity for variant in variants]
    for key in ["model.n_head", "train.max_steps", *identities[0]]:
        values = [identity.get(key) for identity in identities]
        if key != SEED and all(type(value) in (int, float) for value in values) and len({*values}) > 1:
            return key
    return None


def draw_loss_against(axes, comparison: Comparison, key: str) -> None:
    """Draw means and standard errors over seeds, and seeds as dots, with one line per choice of the other settings.

    Rings mark the lowest mean and those that are not told apart from it.
    """
    name = key.partition(".")[2]
    lines: dict[str, list] = {}
    for variant in comparison.finished:
        others = labelled({k: v for k, v in variant.choices.items() if k != name})
        lines.setdefault(others, []).append((variant.first.identity[key], variant))
    for i, (label, points) in enumerate(lines.items()):
        points.sort(key=lambda point: point[0])
        label = label if len(label) <= LONGEST_LABEL else points[0][1].mark + " and related" * (len(points) > 1)
        x = [value for value, _ in points]
        style = line_style(i)
        for value, variant in points:
            losses = list(variant.losses.values())
            axes.plot([value] * len(losses), losses, ".", color=style["color"], alpha=0.45, markersize=7)
        errors = [variant.loss_error or 0 for _, variant in points]
        axes.errorbar(x, [variant.loss for _, variant in points], errors, capsize=4, label=label, **style)
    if alike := comparison.not_told_apart:
        ringed = [(variant.first.identity[key], variant.loss) for variant in [comparison.ranking[0], *alike]]
        axes.plot(*zip(*ringed, strict=True), "o", markersize=16, markerfacecolor="none", markeredgecolor=INK)
    values = sorted({value for points in lines.values() for value, _ in points})
    if values[0] > 0 and values[-1] >= 4 * values[0]:
        axes.set_xscale("log", base=2)
    axes.set_xticks(values, [f"{value:g}" for value in values], minor=False)
    axes.minorticks_off()
    axes.set(xlabel=spoken_setting(key), ylabel="validation loss, nats per character")
    if len(lines) > 1:
        add_legend(axes)


def _curves(axes, comparison: Comparison) -> None:
    """Draw the mean over seeds and the band from the lowest to the highest seed, without the steep start."""
    late, variants = [], comparison.comparable
    longest = max(run.step for variant in variants for run in variant.runs.values())
    for i, variant in enumerate(variants):
        curves = [{step: loss for step, _, loss in run.evaluations} for run in variant.runs.values()]
        steps = sorted(set.intersection(*map(set, curves)))  # that all runs evaluated
        losses = [[curve[step] for curve in curves] for step in steps]
        axes.plot(steps, [*map(fmean, losses)], label=variant.mark, **line_style(i))
        axes.fill_between(steps, [*map(min, losses)], [*map(max, losses)], color=f"C{i}", alpha=0.18, linewidth=0)
        late += [loss for step, each in zip(steps, losses, strict=True) if step >= 0.4 * longest for loss in each]
    if late and max(late) > min(late):
        margin = 0.06 * (max(late) - min(late))
        axes.set_ylim(min(late) - margin, max(late) + margin)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set(xlabel="step", ylabel="validation loss, nats per character")
    add_legend(axes)


def _times(axes, comparison: Comparison) -> None:
    """Draw the losses of each run over seconds, and the target."""
    for i, variant in enumerate(comparison.comparable):
        style = line_style(i)
        for n, run in enumerate(variant.runs.values()):
            _, seconds, losses = zip(*run.evaluations, strict=True)
            axes.plot(seconds, losses, label=None if n else variant.mark, **style)
    axes.axhline(comparison.target, color=INK, linewidth=1.2, linestyle="--")
    axes.annotate(
        f"{comparison.target:g}", (1, comparison.target), xycoords=("axes fraction", "data"), ha="right", va="bottom"
    )
    axes.set(xlabel="seconds", ylabel="validation loss, nats per character")
    add_legend(axes)
