"""The charts of a report."""

from dataclasses import dataclass

from experiments.drawing import INK, SERIES, draw_svg, line_style, plain
from experiments.report.runs import NO_VARIANT, Variant
from experiments.report.statistics import mean
from experiments.report.table import Comparison
from experiments.sweep.plan import setting
from training.config_file import to_dict


@dataclass(frozen=True)
class Chart:
    """name: short, for a file."""

    name: str
    title: str
    svg: str


def draw_charts(comparison: Comparison) -> list[Chart]:
    """The charts in which these variants have something to show.

    Raises ValueError where matplotlib is not installed.
    """
    charts = []
    variants = [row.variant for row in comparison.rows]
    if key := main_setting(variants):
        title = f"Validation loss against {spoken_setting(key)}"
        charts.append(Chart("loss", title, draw_svg("loss", lambda axes: _loss_against(axes, comparison, key))))
    if any(row.difference for row in comparison.rows):
        title, height = f"Difference to {comparison.baseline.label}", 1.2 + 0.35 * len(variants)
        svg = draw_svg("difference", lambda axes: _differences(axes, comparison), height=height)
        charts.append(Chart("difference", title, svg))
    svg = draw_svg("curves", lambda axes: _curves(axes, comparison))
    return [*charts, Chart("curves", "Validation loss over the run", svg)]


def spoken_setting(key: str) -> str:
    return "the number of heads" if key == "model.n_head" else key.partition(".")[2]


def main_setting(variants: list[Variant]) -> str | None:
    """The number that is varied: the head count or, where that is the same for all, the first other one."""
    sections = to_dict(variants[0].config)
    keys = ["model.n_head", *(f"{section}.{name}" for section, values in sections.items() for name in values)]
    for key in keys:
        values = {setting(variant.config, key) for variant in variants}
        if key not in NO_VARIANT and len(values) > 1 and all(type(value) in (int, float) for value in values):
            return key
    return None


def _loss_against(axes, comparison: Comparison, key: str) -> None:
    """Mean and standard error over seeds, and each seed as a dot, a line for each choice of what else is varied."""
    name = key.partition(".")[2]
    lines: dict[str, list] = {}
    for row in comparison.rows:
        others = ", ".join(v if k == "variants" else f"{k}={v}" for k, v in row.variant.choices.items() if k != name)
        lines.setdefault(others, []).append((setting(row.variant.config, key), row))
    for i, (label, points) in enumerate(lines.items()):
        points.sort(key=lambda point: point[0])
        x = [value for value, _ in points]
        style = line_style(i)
        for value, row in points:
            losses = list(row.variant.losses.values())
            axes.plot([value] * len(losses), losses, ".", color=style["color"], alpha=0.45, markersize=7)
        errors = [row.loss_error or 0 for _, row in points]
        axes.errorbar(x, [row.loss for _, row in points], errors, capsize=4, label=plain(label), **style)
    values = sorted({value for points in lines.values() for value, _ in points})
    if values[0] > 0 and values[-1] >= 4 * values[0]:
        axes.set_xscale("log", base=2)
    axes.set_xticks(values, [f"{value:g}" for value in values], minor=False)
    axes.minorticks_off()
    axes.set(xlabel=spoken_setting(key), ylabel="validation loss, nats per character")
    if len(lines) > 1:
        axes.legend()


def _differences(axes, comparison: Comparison) -> None:
    """Mean difference to the baseline and its interval, and each seed as a dot."""
    rows = [row for row in comparison.rows if row.difference]
    for y, row in enumerate(rows):
        base, losses, difference = comparison.baseline.losses, row.variant.losses, row.difference
        each = [losses[seed] - base[seed] for seed in losses.keys() & base.keys()]
        axes.plot(each, [y] * len(each), ".", color=SERIES[1], alpha=0.6, markersize=8)
        error = None
        if difference.low is not None:
            error = [[difference.mean - difference.low], [difference.high - difference.mean]]
        axes.errorbar([difference.mean], [y], xerr=error, color=SERIES[0], marker="D", markersize=6, capsize=4)
    axes.axvline(0, color=INK, linewidth=1.2)
    axes.set_yticks(range(len(rows)), [plain(row.variant.label) for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(axis="x", linewidth=0.8)
    axes.set_xlabel("difference in validation loss, nats per character (left: better)")


def _curves(axes, comparison: Comparison) -> None:
    """Mean over seeds, the band from the lowest to the highest seed; the steep beginning is left out."""
    late = []
    for i, row in enumerate(comparison.rows):
        curves = [{step: loss for step, _, loss in run.evaluations} for run in row.variant.runs.values()]
        steps = sorted(set.intersection(*(set(curve) for curve in curves)))
        losses = [[curve[step] for curve in curves] for step in steps]
        style = line_style(i)
        axes.plot(steps, [mean(each) for each in losses], label=plain(row.variant.label), **style)
        low, high = [min(each) for each in losses], [max(each) for each in losses]
        axes.fill_between(steps, low, high, color=style["color"], alpha=0.18, linewidth=0)
        late += [value for step, each in zip(steps, losses, strict=True) if step >= 0.4 * steps[-1] for value in each]
    if late and max(late) > min(late):
        margin = 0.06 * (max(late) - min(late))
        axes.set_ylim(min(late) - margin, max(late) + margin)
    axes.set(xlabel="step", ylabel="validation loss, nats per character")
    axes.legend(ncols=2)
