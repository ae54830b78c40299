"""Compare runs, or list all of them: python -m experiments.report runs/heads"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from experiments.report.list_runs import list_runs
from experiments.report.write_report import write_report
from training.command import CommandParser, run_command, tell_mistakes


def main(arguments: Sequence[str] | None = None) -> int:
    parser = CommandParser(prog="experiments.report", description=__doc__)
    add = parser.add_argument
    add("runs", nargs="*", type=Path, metavar="RUN", help="run folders or sweep folders (none: list those in runs/)")
    add("--output", type=Path, metavar="PATH", help="write PATH.html, .md and .csv (default: RUN/report)")
    add("--baseline", metavar="VARIANT", help="variant to compare with (default: the first)")
    add("--target", type=float, metavar="LOSS", help="report the time to this validation loss")
    add("--prompt", metavar="TEXT", help="prompt of the samples (default: the start of a line)")
    add("--title", metavar="TEXT", help="title of the report")
    options = parser.parse_args(arguments)
    return tell_mistakes("experiments.report", lambda: run(options), memory="report on fewer runs at a time")


def run(options: argparse.Namespace) -> int:
    if not options.runs:
        print(list_runs())
        return 0
    output = options.output or (options.runs[0] if len(options.runs) == 1 else Path()) / "report"
    output = output.with_suffix("") if output.suffix in (".html", ".md", ".csv") else output
    choices = {name: getattr(options, name) for name in ("title", "baseline", "target", "prompt")}
    print(write_report(options.runs, output, **choices))
    return 0


if __name__ == "__main__":
    run_command(main)
