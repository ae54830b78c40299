"""Compare runs, or list all of them: python -m experiments.report runs/heads"""

import tempfile
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from cli.command import run_command
from cli.errors import UserError
from experiments.command import command, new_file, option
from experiments.report.list_runs import list_runs
from experiments.report.packed_sweep import ENDING, pack, unpack
from experiments.report.write_report import write_report


@command(
    "experiments.report",
    __doc__,
    option("runs", nargs="*", type=Path, metavar="RUN", help="runs, sweeps or packed sweeps (none: list runs/)"),
    option("--pack", type=Path, metavar="FILE", help="also pack the sweep's results into FILE.jsonl, to keep them"),
    option("--output", type=new_file, metavar="PATH", help="write PATH.html, .md and .csv (default: RUN/report)"),
    option("--baseline", metavar="VARIANT", help="variant to compare with (default: the first)"),
    option("--target", type=float, metavar="LOSS", help="report the time to this validation loss"),
    option("--prompt", metavar="TEXT", help="prompt of the samples (default: the start of a line)"),
    option("--title", metavar="TEXT", help="title of the report"),
    memory="report on fewer runs at a time",
)
def main(options: Namespace) -> None:
    if not options.runs and any(value for name, value in vars(options).items() if name != "runs"):
        raise UserError("give at least one RUN; without a RUN, there are no other options")
    if options.pack and (len(options.runs) != 1 or options.pack.suffix != ENDING):
        raise UserError(f"--pack takes one sweep and a file that ends in {ENDING}")
    if not options.runs:
        print(list_runs())
        return
    if options.pack:
        pack(options.runs[0], options.pack)
    output = options.output or _default_output(options.runs)
    output = output.with_suffix("") if output.suffix in (".html", ".md", ".csv") else output
    choices = {name: getattr(options, name) for name in ("title", "baseline", "target", "prompt")}
    with tempfile.TemporaryDirectory() as folder:
        runs = enumerate(options.runs)
        paths = [unpack(path, Path(folder) / str(i)) if path.suffix == ENDING else path for i, path in runs]
        print(write_report(paths, output, **choices))


def _default_output(runs: Sequence[Path]) -> Path:
    if len(runs) > 1:
        return Path("report")
    return runs[0].with_suffix("") if runs[0].suffix == ENDING else runs[0] / "report"


if __name__ == "__main__":
    run_command(main)
