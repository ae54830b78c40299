"""Compare runs, or list all of them: python -m experiments.report runs/heads"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cli.command import CommandParser, report_errors, run_command
from experiments.options import file
from experiments.report.list_runs import list_runs
from experiments.report.packed_sweep import ENDING, pack, unpack
from experiments.report.write_report import write_report


def main(arguments: Sequence[str] | None = None) -> int:
    parser = CommandParser(prog="experiments.report", description=__doc__)
    add = parser.add_argument
    add(
        "runs",
        nargs="*",
        type=Path,
        metavar="RUN",
        help="run folders, sweep folders or packed sweeps (none: list runs/)",
    )
    add("--pack", type=Path, metavar="FILE", help="also pack the sweep's results into FILE.jsonl, to keep them")
    add("--output", type=file, metavar="PATH", help="write PATH.html, .md and .csv (default: RUN/report)")
    add("--baseline", metavar="VARIANT", help="variant to compare with (default: the first)")
    add("--target", type=float, metavar="LOSS", help="report the time to this validation loss")
    add("--prompt", metavar="TEXT", help="prompt of the samples (default: the start of a line)")
    add("--title", metavar="TEXT", help="title of the report")
    options = parser.parse_args(arguments)
    if not options.runs and any(value for name, value in vars(options).items() if name != "runs"):
        parser.error("give at least one RUN; without a RUN, there are no other options")
    if options.pack and (len(options.runs) != 1 or options.pack.suffix != ENDING):
        parser.error(f"--pack takes one sweep and a file that ends in {ENDING}")
    return report_errors("experiments.report", lambda: run(options), memory="report on fewer runs at a time")


def run(options: argparse.Namespace) -> int:
    if not options.runs:
        print(list_runs())
        return 0
    if options.pack:
        pack(options.runs[0], options.pack)
    output = options.output or _default_output(options.runs)
    output = output.with_suffix("") if output.suffix in (".html", ".md", ".csv") else output
    choices = {name: getattr(options, name) for name in ("title", "baseline", "target", "prompt")}
    with tempfile.TemporaryDirectory() as folder:
        runs = enumerate(options.runs)
        paths = [unpack(path, Path(folder) / str(i)) if path.suffix == ENDING else path for i, path in runs]
        print(write_report(paths, output, **choices))
    return 0


def _default_output(runs: Sequence[Path]) -> Path:
    if len(runs) > 1:
        return Path("report")
    return runs[0].with_suffix("") if runs[0].suffix == ENDING else runs[0] / "report"


if __name__ == "__main__":
    run_command(main)
