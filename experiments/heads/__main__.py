"""Measure the attention heads of a trained model: python -m experiments.heads --checkpoint runs/shakespeare"""

import csv
import io
import math
import sys
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cli.command import run_command
from cli.errors import UserError
from cli.hints import shortened
from cli.options import command, option, replaceable
from data.files import replace_text
from experiments.formatting import in_columns, signed
from experiments.heads.analysis import VALIDATION, Analysis, analyse
from experiments.heads.measures import TARGETS, role_of
from experiments.heads.silence import HeadIndex
from page.models import make_page
from page.template import open_in_browser
from training.trained_model import TrainedModel, load_model

MODELS = "a run folder or a checkpoint (default: the best saved last); two are shown side by side"
OUTPUT = "the page to write, with a table as .csv (default: heads.html in the run folder, or here for two models)"
N_CHARACTERS = 20_000  # of the validation split, to silence heads over
FIGURES = ("scale", "entropy, bits", "characters back", *TARGETS)
COLUMNS = ("model", "layer", "head", "role", "loss increase", "standard error", *FIGURES)


@command(
    option("--checkpoint", type=Path, nargs="+", default=[None], metavar="PATH", help=MODELS),
    option("--text", type=Path, metavar="FILE", help="a text in place of the validation split, in its encoding"),
    option("--prompt", metavar="TEXT", help="text that the page begins with (default: the model writes one)"),
    option("--output", type=replaceable, metavar="FILE", help=OUTPUT),
    option("--all", action="store_true", help=f"silence heads over the whole split, not {N_CHARACTERS:,} characters"),
    option("--device", default="auto", help="auto, cpu, cuda, cuda:1 or mps (%(default)s)"),
    option("--no-browser", action="store_true", help="open no browser"),
)
def main(options: Namespace) -> None:
    if len(options.checkpoint) > 2:
        raise UserError("--checkpoint takes one model or two")
    opened = [load_model(path, options.device, text=options.text) for path in options.checkpoint]
    texts = [each.split() for each in opened]
    folder = opened[0].run_folder if len(opened) == 1 else None
    page = options.output or replaceable((folder or Path()) / "heads.html")
    table = replaceable(page.with_suffix(".csv"), mark=to_csv([]).strip())
    print(f"Measuring each head of {', '.join(each.source for each in opened)}", file=sys.stderr, flush=True)
    n = None if options.all else N_CHARACTERS
    text = str(options.text or VALIDATION)
    analyses = [
        analyse(each.model, each.vocabulary, ids, each.runtime, n, text=text)
        for each, ids in zip(opened, texts, strict=True)
    ]
    found = [*zip(opened, analyses, strict=True)]
    title = f"Heads of {' and '.join(each.name for each in opened)}"
    replace_text(page, make_page(opened, text=options.prompt, title=title, measured=[*map(for_page, analyses)]))
    replace_text(table, to_csv(found))
    parts = [f"{each.path}\n{to_plain(analysis)}" for each, analysis in found]
    table_name, page_name = (shortened(file.absolute()) for file in (table, page))
    parts.append(f"All figures: {table_name}\nPage to open in a browser: {page_name}")
    print("\n\n".join(parts))  # after the files are written, because a reader may close the pipe
    if not options.no_browser:
        open_in_browser(page)


def rows_of(analysis: Analysis) -> list[dict[str, Any]]:
    """Return what was measured of each head by column, layer by layer; None for what could not be measured."""
    measures, rows = analysis.measures, []
    heads = [part for part in analysis.increases if isinstance(part, HeadIndex)]
    for i, head in enumerate(heads):
        increase, error = analysis.increases[head]
        figures = {name: float(values[i]) for name, values in measures.figures.items()}
        numbers = {"loss increase": increase, "standard error": error} | figures
        row = {"layer": head.layer, "head": head.number, "role": role_of(measures, i)[0]}
        rows.append(row | {name: None if math.isnan(value) else value for name, value in numbers.items()})
    return rows


def to_csv(found: Iterable[tuple[TrainedModel, Analysis]]) -> str:
    """Return one line of unformatted numbers per head of these models, which are named by their paths."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for trained, analysis in found:
        writer.writerows({"model": trained.path} | row for row in rows_of(analysis))
    return out.getvalue()


def to_plain(analysis: Analysis) -> str:
    """Return a line for a head with uniform weights, one per head, the most important first."""
    rows, uniform, whole = rows_of(analysis), analysis.measures.uniform, analysis.evaluation
    names = [name for name in FIGURES if name != "entropy, bits" and rows[0].get(name) is not None]
    lines = [["head", "role", "loss increase", "standard error", *names]]
    lines.append(["uniform", "", "", "", *(f"{uniform[name]:.2f}" if name in uniform else "" for name in names)])
    for row in sorted(rows, key=lambda row: -row["loss increase"]):
        head, error = HeadIndex(row["layer"], row["head"]), row["standard error"]
        figures = [f"{row[name]:.{2 if name in TARGETS else 1}f}" for name in names]
        shown_error = "none" if error is None else f"{error:.4f}"
        lines.append([str(head), row["role"], signed(row["loss increase"]), shown_error, *figures])
    title = f"Loss {whole.loss:.4f} over {whole.measured_on(analysis.text)}."
    return f"{title}\nIts increase without each head, the most important first:\n{in_columns(lines)}"


def for_page(analysis: Analysis) -> dict[str, Any]:
    """Return the role of each head, how the loss changes without each part, as a number and in words, and a summary."""
    changes = {}
    for part, (increase, error) in analysis.increases.items():
        spread = "" if math.isnan(error) else f" ± {error:.4f}"
        verb = "rises" if increase >= 0 else "falls"
        changes[str(part)] = signed(increase), f"the loss {verb} by {abs(increase):.4f}{spread} without it"
    whole, n_heads = analysis.evaluation, len(analysis.measures.figures["on itself"])
    summary = [
        f"Measured over {analysis.measures.n_characters:,} characters of {analysis.text}.",
        "Without a head means: with its output set to zero; ± is the standard error.",
        f"The whole model has a loss of {whole.loss:.4f} nats per character over {whole.measured_on(analysis.text)}.",
        *(f"The memory of {part}: {changes[part][1]}." for part in analysis.increases if isinstance(part, str)),
    ]
    roles = [role_of(analysis.measures, i) for i in range(n_heads)]
    return {"roles": roles, "changes": changes, "summary": " ".join(summary)}


if __name__ == "__main__":
    run_command(main)
