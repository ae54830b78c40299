"""Train every combination of settings: python -m experiments.sweep --config configs/heads.yaml model.n_head=1,2,4"""

from argparse import Namespace
from contextlib import redirect_stderr, redirect_stdout, suppress
from io import StringIO
from pathlib import Path

from cli.command import run_command, whole
from cli.console import Console
from cli.errors import UserError
from cli.hints import to_paste
from cli.options import command, option
from data.corpus import open_corpus
from data.files import exclusive
from experiments.report.__main__ import main as report
from experiments.sweep.sweep_folder import SweepFolder, load_plan, read_plan
from experiments.sweep.workers import train_runs
from training.runs.differences import with_ancestor
from training.runs.metrics import read_newest_record
from training.runs.run_folder import RunFolder
from training.runtime import prepare_machine


@command(
    option("values", nargs="*", metavar="section.key=values", help="values to try, such as 1,2,4 or 0..3, or to fix"),
    option("--config", type=Path, metavar="FILE", help="the settings of all runs; its section `sweep` can vary some"),
    option("--resume", type=Path, metavar="FOLDER", help="resume the sweep in a folder"),
    option("--workers", type=whole(1), default=1, metavar="N", help="parallel runs, which share cores and GPUs (1)"),
    option("--plan", action="store_true", help="create the runs, print the folder of each unfinished one, and stop"),
)
def main(options: Namespace) -> int:
    folder = open_sweep(options)
    if options.plan:
        for point in folder.unfinished():
            print(folder.run_of(point).path)
        return 0
    with exclusive(folder.path, "is running this sweep"):
        status = train_points(folder, options.workers)
    if len(folder.unfinished()) < len(folder.plan.points):
        print()
        status = report([str(folder.path)]) or status
    if status:
        again = to_paste("experiments.sweep", "--resume", folder.path, f"--workers={options.workers}")
        print(f"To resume: {again}")
    return status


def open_sweep(options: Namespace) -> SweepFolder:
    """Return the folder of the sweep that the options name or describe.

    Raises UserError, before anything is written, if a combination is invalid or a point's text or device is missing.
    """
    if bool(options.config) == bool(options.resume):
        raise UserError("give --config FILE to start a sweep, or --resume FOLDER to resume one")
    if options.resume and options.values:
        raise UserError("settings cannot change; to add values, repeat the first command with more values")
    plan = read_plan(options.resume) if options.resume else load_plan(options.config, options.values)
    if plan is None:
        raise UserError(f"{options.resume}: is not the folder of a sweep, such as runs/heads")
    for config in (point.config for point in plan.points):
        whole = with_ancestor(config)[0] if options.config and config.train.ancestor else config
        open_corpus(whole.data).split(config.data.split, config.model.block_size)
        prepare_machine(config)
    if options.resume:
        return SweepFolder(options.resume, plan)
    return SweepFolder.open(plan.points[0].config.train.name or options.config.stem, plan)


def train_points(folder: SweepFolder, n_workers: int) -> int:
    """Train every unfinished point and return the exit status: 1 if one failed, 128 + n if signal n stopped them."""
    n_points, unfinished, failed = len(folder.plan.points), folder.unfinished(), []
    n_before = n_points - len(unfinished)
    console = Console(n_before, n_points, doing="Sweep")
    before = f", {n_before} finished before" if n_before else ""
    begins = f"Sweep of {n_points} run{'s' * (n_points != 1)} in {folder.path}{before}"
    console.say(f"{begins}; its report.html is updated after each run")

    def ended(run: RunFolder, reason: str | None) -> None:
        if reason:
            failed.append(run)
            console.say(f"{run.path.name}: FAILED, {reason}")
        else:
            console.advance()
            end = read_newest_record(run.metrics)
            loss, seconds = end.get("best_val_loss") or float("nan"), end.get("elapsed_s", float("nan"))
            console.say(f"{run.path.name}: validation loss {loss:.4f}, {seconds:.0f} s")
            renew_report(folder.path)

    runs = [(folder.run_of(point), point.config.train) for point in unfinished]
    number = train_runs(runs, n_workers, ended)
    console.close()
    if number:
        print(f"Stopped by {number.name}; finished: {n_points - len(folder.unfinished())} of {n_points} runs")
        return 128 + number
    return 1 if failed else 0


def renew_report(path: Path) -> None:
    """Write the report of a running sweep silently. An error in it must not stop the sweep."""
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()), suppress(Exception):
        report([str(path)])


if __name__ == "__main__":
    run_command(main)
