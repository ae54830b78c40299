"""Train a character-level GPT: python train.py --config configs/shakespeare.yaml"""

import argparse
import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

import cli.startup  # before torch
from cli.command import CommandParser, Stopped, StopRequest, report_errors, run_command
from training.evaluation import evaluate
from training.log.run_log import RunLog
from training.runs.open_run import open_run
from training.runs.run_folder import RunFolder
from training.runtime import keep_freed_memory
from training.state import TrainingState
from training.step import TrainingStep


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status: 2 if the user made a mistake, 1 if the run failed midway."""
    # The time of a run includes the import of torch if this is the command that imported it.
    started_s = cli.startup.STARTED_S if arguments is None else time.perf_counter()
    memory = "lower train.batch_size, model.block_size, model.n_embd or model.ngram_rows"
    interrupted = "interrupted before the first step; nothing is lost"  # later, `train` saves the run
    return report_errors("train.py", lambda: run(parse(arguments), started_s), memory=memory, interrupted=interrupted)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = CommandParser(prog="train.py", description="Train a character-level GPT into runs/NAME/, or resume a run.")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--config", type=Path, metavar="FILE", help="start a run from the settings of a YAML file")
    source.add_argument("--resume", type=Path, metavar="FOLDER", help="resume the run in a folder")
    add = parser.add_argument
    add("overrides", nargs="*", metavar="section.key=value", help="override settings of the file or the run")
    add("--from", dest="ancestor", type=Path, metavar="PATH", help="start from a model's weights (fine-tuning)")
    options = parser.parse_intermixed_args(arguments)
    if not (options.config or options.resume):
        parser.error("name a config or a run, such as --config configs/shakespeare.yaml or --resume runs/shakespeare")
    if options.ancestor:
        options.overrides.append(f"train.ancestor={options.ancestor}")
    return options


def run(options: argparse.Namespace, started_s: float) -> int:
    """Train the run that the options describe or name to its end."""
    keep_freed_memory()
    with open_run(options.config, options.resume, options.overrides) as opened:
        return train(*opened, started_s)


def train(run: RunFolder, state: TrainingState, step: TrainingStep, changes: Sequence[str], started_s: float) -> int:
    """Train to the end of the run and return the exit status.

    changes: settings that differ from earlier sessions. started_s: `time.perf_counter()` when the command began.
    """
    progress, n_characters = state.progress, state.config.train.eval_characters
    model, val_ids, runtime = state.average.model, state.split.validation, state.runtime
    with contextlib.closing(RunLog(run, state, started_s)) as log, StopRequest() as stop:
        run.keep(state)
        log.introduce(changes)
        try:
            while not state.is_finished():
                stop.check()
                if not progress.evaluation_due:
                    step.run()
                    log.step()
                with log.clock.pause():
                    if progress.evaluation_due:
                        state.check_finite()
                        result = evaluate(model, val_ids, runtime, n_characters=n_characters, check_stop=stop.check)
                        is_best = state.note_evaluation(result.loss)
                        log.evaluation(result, is_best=is_best)
                        run.save(state, elapsed_s=log.clock.elapsed_s, is_best=is_best)
                    run.keep(state)
        except Stopped as stopped:
            run.save(state, elapsed_s=log.clock.elapsed_s)
            log.stopped(stopped.signal.name)
            return 128 + stopped.signal
        log.finished()
    return 0


if __name__ == "__main__":
    run_command(main)
