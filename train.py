"""Train a character-level GPT: python train.py --config configs/shakespeare.yaml"""

import signal
import time

STARTED_S = time.perf_counter()  # before the imports, which are part of a run's time
if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback for Ctrl-C while PyTorch is imported

import cli.openmp  # noqa: F401, I001 - before torch

import argparse
import contextlib
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from data.batches import TrainingBatches
from data.corpus import open_corpus
from training.log.clock import Clock
from cli.command import CommandParser, run_command, report_errors
from cli.errors import explain, UserError
from training.settings.config_file import build_config, naming, read_settings, to_yaml
from training.processes.distributed import LostProcessError, OtherProcessError, World, join_world
from training.evaluation import EvaluationStoppedError, evaluate
from training.runs.preparation import check_agreement, prepare_machine, prepare_text, start_processes
from training.runs.resuming import load_state
from training.runs.run_folder import RunFolder
from training.log.run_log import RunLog
from training.runtime import Runtime, keep_freed_memory
from training.sampling import sample_text
from training.runs.saving import Saver, explained
from training.state import TrainingError, TrainingState
from training.step import CompilationError, TrainingStep
from cli.stopping import StopRequest
from training.sweep.launch import is_sweep, resume_sweep, start_sweep
from training.sweep.plan import make_plan

LONGEST_TIMEOUT_S = 1e6


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status: 2 if the user made a mistake, 1 if the run failed midway."""
    options = parse(arguments)

    def work() -> int:
        keep_freed_memory()
        try:
            with join_world(options.timeout) as world:
                options.resume = world.run_before_restart() or options.resume
                return resume(options, world) if options.resume else start(options, world)
        except OtherProcessError:
            return 2
        except (TrainingError, LostProcessError) as error:
            print(f"train.py: {explain(error)}", file=sys.stderr)
            return 1

    return report_errors("train.py", work, memory="lower train.batch_size, model.block_size or model.n_embd")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = CommandParser(
        prog="train.py",
        description="Train a character-level GPT, or all runs of a sweep, and write the results to runs/NAME/; "
        "or resume a run or a sweep.",
        epilog="examples: train.py --config configs/shakespeare.yaml model.n_head=8 train.max_steps=500  |  "
        "train.py --config configs/selmere.yaml data.corpus=my.txt  |  train.py --resume runs/shakespeare  |  "
        "train.py --config configs/shakespeare.yaml --sweep model.n_head=1,2,4 train.seed=0..3",
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--config", type=Path, metavar="FILE", help="start a run from the settings of a YAML file")
    source.add_argument("--resume", type=Path, metavar="FOLDER", help="resume the run or sweep in a folder")
    add = parser.add_argument
    add("overrides", nargs="*", metavar="section.key=value", help="override settings of the file or the run")
    combinations = "run every combination of these values, such as model.n_head=1,2,4"
    add("--sweep", nargs="+", action="extend", metavar="section.key=values", help=combinations)
    verify = "compare the encoded text with its SHA-256 even if its file seems unchanged"
    add("--verify", action="store_true", help=verify)
    add("--workers", type=int, metavar="N", help="parallel runs of a sweep, which share cores and GPUs (1)")
    limit = "several processes: one that waits for another for SECONDS gives up (300)"
    add("--timeout", type=float, default=300.0, metavar="SECONDS", help=limit)
    options = parser.parse_intermixed_args(arguments)
    options.given = arguments
    if not 0 < options.timeout <= LONGEST_TIMEOUT_S:
        parser.error(f"--timeout must be above 0 and at most {LONGEST_TIMEOUT_S:,.0f}")
    if options.sweep and options.resume:
        parser.error("--sweep needs --config; to add values to a sweep, repeat its first command with more values")
    if options.workers is not None and options.workers < 1:
        parser.error("--workers must be at least 1")
    return options


def start(options: argparse.Namespace, world: World) -> int:
    """Start a run in a new folder, or a sweep."""
    with world.together():
        settings = read_settings(options.config)
        with naming(options.config):
            plan = make_plan(settings, options.overrides, options.sweep)
        check_options(options, world, is_sweep=plan is not None)
        if plan:
            return start_sweep(plan, options.config.stem, options.workers or 1, verify=options.verify)
        with naming(options.config):
            config = build_config({k: v for k, v in settings.items() if k != "sweep"}, options.overrides)
        name = config.train.name or options.config.stem
        config, corpus, name = prepare_text(config, name, verify=options.verify, world=world)
        runtime = prepare_machine(config, world)
    start_processes(config, world, options.given)
    with world.together():
        check_agreement(config, corpus, world)
        folder = RunFolder.create(name, to_yaml(config)).path if world.is_main else Path()
    state = TrainingState(config, corpus, runtime)
    run = RunFolder(Path(world.share(bytes(folder)).decode()))
    with world.together():
        run.check_new()
    with run.lock() if world.is_main else contextlib.nullcontext():
        return train(state, run, runtime)


def resume(options: argparse.Namespace, world: World) -> int:
    """Resume the run in a folder from its newest intact checkpoint, or a sweep with its unfinished runs."""
    with contextlib.ExitStack() as lock:
        with world.together():
            check_options(options, world, is_sweep=is_sweep(options.resume))
            if is_sweep(options.resume):
                return resume_sweep(options.resume, options.overrides, options.workers or 1, verify=options.verify)
            folder = Path()
            if world.is_main:
                run = RunFolder.find(options.resume)
                lock.enter_context(run.lock())
                folder = run.path
        run = RunFolder(Path(world.share(bytes(folder)).decode()))
        settings, checkpoint = load_state(run, world, options.overrides)
        with world.together():
            config = build_config(settings, options.overrides)
            runtime = prepare_machine(config, world)
            without_fallback = dataclasses.replace(config.data, fallback=None)  # a run never changes its text
            corpus = open_corpus(without_fallback, verify=options.verify)
        start_processes(config, world, options.given)
        with world.together():
            check_agreement(config, corpus, world)
        state = TrainingState(config, corpus, runtime)
        with world.together():
            changes = state.restore(checkpoint) if checkpoint else []
            if world.is_main:
                run.write_config(to_yaml(config))
                run.remove_partial_files()
                run.rewind(state.progress.step, state.progress.log_sizes)
        return train(state, run, runtime, changes=changes)


def check_options(options: argparse.Namespace, world: World, *, is_sweep: bool) -> None:
    if options.workers and not is_sweep:
        raise UserError("--workers is for sweeps, but this is a single run; vary a setting with --sweep")
    if is_sweep and world.store is not None:
        raise UserError("a sweep starts the processes of its runs itself; start it with python instead of torchrun")


def train(state: TrainingState, run: RunFolder, runtime: Runtime, *, changes: Sequence[str] = ()) -> int:
    """Train from the state's step to the end of the run and return the command's exit status.

    changes: settings that differ from those of the run so far. Raises TrainingError if the run cannot continue.
    """
    settings, block_size, progress = state.config.train, state.config.model.block_size, state.progress
    world = runtime.world
    world.remember_run(run.path)
    train_ids, val_ids, test_ids = state.corpus.split(state.config.data.split, block_size)
    batches = TrainingBatches(
        train_ids,
        block_size=block_size,
        batch_size=settings.batch_size,
        seed=settings.seed,
        device=runtime.device,
        part=world.share_of(settings.batch_size),
    )
    step = TrainingStep(state, batches, runtime)
    clock = Clock(STARTED_S, earlier_s=progress.elapsed_s)
    log = RunLog(state, run, runtime, clock, tokens_per_step=step.tokens)
    log.introduce(n_train=len(train_ids), n_val=len(val_ids) - 1, n_test=len(test_ids) - 1, changes=changes)

    def due(every_steps: int) -> bool:
        return progress.step % every_steps == 0 or progress.step == settings.max_steps

    saver, sample = Saver(state, run, runtime, clock), ""
    with contextlib.closing(log), StopRequest(announces=world.is_main) as stop, explained(run, world):
        with clock.pause():
            saver.keep()
        while not state.is_finished():
            if number := world.agree(stop.signal or 0):
                saver.save()
                log.stopped(signal.Signals(number).name)
                return 128 + number
            if not progress.evaluation_due:
                try:
                    step.run()
                except CompilationError:
                    if stop.signal:
                        continue  # Ctrl-C in a terminal ends the compiler too
                    raise
                log.step()
                for skipped_step, name in state.take_skipped():
                    log.skipped(skipped_step, name)
                if due(settings.log_every_steps):
                    log.training(state.take_mean_loss(), clock.lap_s())
                progress.evaluation_due = due(settings.eval_every_steps)
            with clock.pause():
                is_best = False
                if progress.evaluation_due:
                    state.check_finite()
                    try:
                        result = evaluate(
                            state.average.model,
                            val_ids,
                            block_size,
                            runtime,
                            n_characters=settings.eval_characters,
                            must_stop=lambda: bool(stop.signal),
                        )
                    except EvaluationStoppedError:
                        continue
                    progress.evaluation_due = False
                    # The same seed for every sample, so that samples can be compared.
                    vocabulary, length = state.corpus.vocabulary, settings.sample_length
                    sample = sample_text(state.average.model, vocabulary, "", length, seed=settings.seed)
                    is_best = state.note_evaluation(result.loss)
                    log.evaluation(result, sample, is_best=is_best)
                if is_best or due(settings.checkpoint_every_steps) or state.is_finished():
                    saver.save(is_best=is_best)
                saver.keep()
        log.finished(sample)
        return 0


if __name__ == "__main__":
    run_command(main)
