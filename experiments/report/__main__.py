"""Compare runs, or list all of them: python -m experiments.report runs/heads"""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cli.command import run_command
from cli.errors import UserError, printable
from cli.hints import shortened, to_paste
from cli.options import command, option, replaceable
from data.files import is_locked, replace_text
from experiments.drawing import stand_alone
from experiments.report.charts import draw_charts
from experiments.report.comparison import compare
from experiments.report.find_runs import find_runs
from experiments.report.findings import conclusions
from experiments.report.list_runs import list_runs
from experiments.report.notes import make_notes
from experiments.report.packed_sweep import ENDING, name_of, pack
from experiments.report.table import table, to_plain
from experiments.sweep.sweep_folder import PLAN_FILE
from page.template import render
from training.config_file import to_yaml
from training.identity import SEED, what_differs

HERE = Path(__file__).parent
OUTPUT = "write PATH.html and PATH.md (default: RUN/report, or report in this folder for several RUNs)"


@command(
    option("runs", nargs="*", type=Path, metavar="RUN", help="runs, sweeps or packed sweeps (none: list runs/)"),
    option("--pack", type=replaceable, metavar="FILE", help="only pack the sweep's results into FILE.jsonl"),
    option("--output", type=Path, metavar="PATH", help=OUTPUT),
    option("--baseline", metavar="VARIANT", help="variant to compare with (default: the first)"),
    option("--target", type=float, metavar="LOSS", help="report the time to this validation loss"),
    option("--title", metavar="TEXT", help="title of the report"),
)
def main(options: Namespace) -> None:
    if not options.pack:
        print(printable(write_report(options) if options.runs else list_runs()))
        return
    if len(options.runs) != 1 or options.pack.suffix != ENDING:
        raise UserError(f"--pack takes one sweep and a file that ends in {ENDING}")
    pack(options.runs[0], options.pack)
    print(f"Packed into {options.pack}\nTo report on it:\n  {to_paste('experiments.report', options.pack)}")


def write_report(options: Namespace) -> str:
    """Compare the runs, write the page, Markdown and charts, and return text for the console."""
    variants, left_out = find_runs(options.runs)
    comparison = compare(variants, baseline=options.baseline, target=options.target)
    notes = make_notes(comparison, left_out)
    sentences = conclusions(comparison)
    output = _output(options.output, options.runs)
    identities = [variant.first.identity for variant in variants]
    differing = {SEED, *what_differs(identities)}
    values: dict[str, Any] = {
        "title": options.title or f"Report on {', '.join(map(name_of, options.runs))}",
        "name": output.name,
        "is_running": any(is_locked(path) for path in options.runs if (path / PLAN_FILE).is_file()),
        "sentences": sentences,
        "table": table(comparison),
        "notes": notes,
        "charts": draw_charts(comparison, options.target),
        "settings": to_yaml({key: value for key, value in identities[0].items() if key not in differing}),
    }
    files = {Path(f"{output}-{chart.name}.svg"): stand_alone(chart.svg) for chart in values["charts"]}
    files[Path(f"{output}.html")] = render(HERE / "report.html", **values)
    files[Path(f"{output}.md")] = render(HERE / "markdown.txt", **values)
    for file in [*map(replaceable, files)]:
        replace_text(file, printable(files[file]))
    where = f"Report to open in a browser: {shortened(Path(f'{output}.html').absolute())}"
    warnings = [note for note in notes if note.startswith(("WARNING", "Unfinished", "Left out"))]
    return "\n".join([to_plain(comparison), "", *sentences, "", where, *warnings])


def _output(given: Path | None, runs: Sequence[Path]) -> Path:
    """Return the path of the report without an ending."""
    if given:
        return given.with_suffix("") if given.suffix in (".html", ".md") else given
    if len(runs) > 1:
        return Path("report")
    return runs[0].with_suffix("") if runs[0].suffix == ENDING else runs[0] / "report"


if __name__ == "__main__":
    run_command(main)
