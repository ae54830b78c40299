"""Draw validation loss over time from the metrics of runs: python -m experiments.loss_over_time runs/A runs/B"""

from argparse import Namespace
from pathlib import Path

from cli.command import run_command
from cli.errors import UserError
from experiments.command import command, new_file, option
from experiments.drawing import load_pyplot, save_figure
from training.runs.metrics import read_records

Curve = tuple[list[float], list[float], int]  # seconds and losses of the evaluations, and their context length


@command(
    option("runs", nargs="+", type=Path, metavar="RUN", help="run folders"),
    option("--output", type=new_file, default=Path("loss_over_time.svg"), help="the chart (%(default)s)"),
    option("--target", type=float, action="append", default=[], metavar="LOSS", help="mark this loss"),
)
def main(options: Namespace) -> None:
    draw(options.output, {str(run): read_curve(run) for run in options.runs}, options.target)
    print(f"Drew {options.output}")


def read_curve(run: Path) -> Curve:
    """Return the evaluations of a run: seconds since the command started, losses in nats per character, context.

    Raises UserError if the run has no evaluation.
    """
    records = [record for record in read_records(run / "metrics.jsonl") if "val_loss" in record]
    if not records:
        raise UserError(f"{run} has no evaluation yet")
    return [r["elapsed_s"] for r in records], [r["val_loss"] for r in records], records[-1]["val_context"]


def draw(path: Path, curves: dict[str, Curve], targets: list[float]) -> None:
    pyplot = load_pyplot()
    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    for number, (name, (seconds, losses, context)) in enumerate(curves.items()):
        axes.plot(seconds, losses, marker="osD^v"[number % 5], markersize=4, label=f"{name} (context {context})")
        axes.annotate(f"{losses[-1]:.3f}", (seconds[-1], losses[-1]), (6, 4), textcoords="offset points")
    for target in targets:
        axes.axhline(target, color="gray", linestyle="--", linewidth=1)
        axes.annotate(f"{target}", (0.01, target), (0, 3), axes.get_yaxis_transform(), "offset points", color="gray")
    axes.set_xscale("log")
    axes.margins(x=0.1)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:g}"[0] in "235" else "")
    axes.set(xlabel="seconds since the command started", ylabel="validation loss, nats per character")
    axes.grid(alpha=0.3)
    axes.legend()
    save_figure(figure, path)


if __name__ == "__main__":
    run_command(main)
