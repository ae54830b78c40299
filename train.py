"""Train a character-level GPT: python train.py --config configs/shakespeare.yaml"""

import signal
import time

STARTED_S = time.perf_counter()  # before the imports, which are part of a run's time
if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback for Ctrl-C while PyTorch is imported

import training.openmp  # noqa: F401, I001 - before torch

import argparse
import contextlib
import dataclasses
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from data.batches import TrainingBatches
from data.corpus import open_corpus
from training.checkpoint import Checkpoint, save_checkpoint
from training.clock import Clock
from training.command import CommandParser, explain, run_command, tell_mistakes
from training.config_file import build_config, load_run_config, naming, read_settings, to_yaml, upgraded
from training.evaluation import EvaluationStoppedError, evaluate
from training.metrics import read_newest_record
from training.preparation import prepare_machine, prepare_text
from training.run_folder import RunFolder
from training.run_log import RunLog
from training.runtime import Runtime, keep_freed_memory, peak_memory_bytes
from training.sampling import sample_text
from training.schedule import kept_steps
from training.state import TrainingError, TrainingState
from training.step import CompilationError, TrainingStep
from training.stopping import StopRequest
from training.sweep.launch import is_sweep, resume_sweep, start_sweep
from training.sweep.plan import make_plan


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status: 2 if the user made a mistake, 1 if the run failed midway."""
    options = parse(arguments)

    def work() -> int:
        keep_freed_memory()
        try:
            return resume(options) if options.resume else start(options)
        except TrainingError as error:
            print(f"train.py: {explain(error)}", file=sys.stderr)
            return 1

    return tell_mistakes("train.py", work, memory="lower train.batch_size, model.block_size or model.n_embd")


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
    options = parser.parse_intermixed_args(arguments)
    if options.sweep and options.resume:
        parser.error("--sweep needs --config; to add values to a sweep, repeat its first command with more values")
    if options.workers is not None and options.workers < 1:
        parser.error("--workers must be at least 1")
    return options


def start(options: argparse.Namespace) -> int:
    """Start a run in a new folder, or a sweep."""
    settings = read_settings(options.config)
    with naming(options.config):
        plan = make_plan(settings, options.overrides, options.sweep)
    if plan:
        return start_sweep(plan, options.config.stem, options.workers or 1, verify=options.verify)
    with naming(options.config):
        config = build_config({k: v for k, v in settings.items() if k != "sweep"}, options.overrides)
    check_workers(options)
    name = config.train.name or options.config.stem
    config, corpus, name = prepare_text(config, name, verify=options.verify)
    runtime = prepare_machine(config)
    state = TrainingState(config, corpus, runtime)
    run = RunFolder.create(name, to_yaml(config))
    with run.lock():
        return train(state, run, runtime)


def resume(options: argparse.Namespace) -> int:
    """Resume the run in a folder from its newest intact checkpoint, or a sweep with its unfinished runs."""
    if is_sweep(options.resume):
        return resume_sweep(options.resume, options.overrides, options.workers or 1, verify=options.verify)
    check_workers(options)
    run = RunFolder.find(options.resume)
    with run.lock():
        checkpoint = newest_checkpoint(run)
        config = build_config(
            checkpoint.settings if checkpoint else upgraded(read_settings(run.config)), options.overrides
        )
        runtime = prepare_machine(config)
        without_fallback = dataclasses.replace(config.data, fallback=None)  # a run never changes its text
        corpus = open_corpus(without_fallback, verify=options.verify)
        state = TrainingState(config, corpus, runtime)
        changes = state.restore(checkpoint) if checkpoint else []
        run.write_config(to_yaml(config))
        run.remove_partial_files()
        run.rewind(state.progress.step, state.progress.log_sizes)
        return train(state, run, runtime, changes=changes)


def newest_checkpoint(run: RunFolder) -> Checkpoint | None:
    """Return the checkpoint to resume from, or None if the run ended before its first one and starts again.

    Raises CheckpointError if the run has saved a checkpoint that is now damaged or missing.
    """
    if not run.has_checkpoints() and not run.saved_note.exists():
        settings = load_run_config(run.config).train
        first_save = min(settings.checkpoint_every_steps, settings.eval_every_steps, settings.max_steps)
        record = read_newest_record(run.metrics)
        if record.get("step", 0) <= first_save and not record.get("finished"):
            return None
    checkpoint, warnings = run.load_newest()
    for warning in warnings:
        print(f"train.py: warning: {warning}; resuming from step {checkpoint.step:,}", file=sys.stderr)
    return checkpoint


def check_workers(options: argparse.Namespace) -> None:
    if options.workers:
        raise ValueError("--workers is for sweeps, but this is a single run; vary a setting with --sweep")


def train(state: TrainingState, run: RunFolder, runtime: Runtime, *, changes: Sequence[str] = ()) -> int:
    """Train from the state's step to the end of the run and return the command's exit status.

    changes: settings that differ from those of the run so far. Raises TrainingError if the run cannot continue.
    """
    settings, block_size, progress = state.config.train, state.config.model.block_size, state.progress
    train_ids, val_ids, test_ids = state.corpus.split(state.config.data.split, block_size)
    batches = TrainingBatches(
        train_ids, block_size=block_size, batch_size=settings.batch_size, seed=settings.seed, device=runtime.device
    )
    step = TrainingStep(state, batches, runtime)
    clock = Clock(STARTED_S, earlier_s=progress.elapsed_s)
    log = RunLog(state, run, runtime, clock, tokens_per_step=step.tokens)
    log.introduce(n_train=len(train_ids), n_val=len(val_ids) - 1, n_test=len(test_ids) - 1, changes=changes)

    def due(every_steps: int) -> bool:
        return progress.step % every_steps == 0 or progress.step == settings.max_steps

    def save(*, is_best: bool = False) -> None:
        progress.elapsed_s, progress.log_sizes = clock.elapsed_s, run.sizes()
        progress.peak_memory_bytes = max(progress.peak_memory_bytes, peak_memory_bytes(runtime.device))
        run.save(state.snapshot(), is_best=is_best)

    steps_to_keep = set(kept_steps(settings.keep_checkpoints, settings.max_steps))

    def keep() -> None:
        if progress.step in steps_to_keep or (steps_to_keep and state.is_finished()):
            save_checkpoint(state.snapshot().weights_only(), run.kept(progress.step))

    sample = ""
    with contextlib.closing(log), StopRequest() as stop, explained(run):
        with clock.pause():
            keep()
        while not state.is_finished():
            if stop.signal:
                save()
                log.stopped(stop.signal.name)
                return 128 + stop.signal
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
                    save(is_best=is_best)
                keep()
        log.finished(sample)
        return 0


@contextlib.contextmanager
def explained(run: RunFolder) -> Iterator[None]:
    """Turn an OSError during a run into a TrainingError that says what to do."""
    try:
        yield
    except OSError as error:
        saved = f"resume with --resume {run.path}" if run.has_checkpoints() else "start again: nothing was saved yet"
        raise TrainingError(f"{explain(error)}; fix this, then {saved}") from error
    except ValueError as error:  # settings are checked by now, so this is a bug and not a user's mistake
        raise RuntimeError(str(error)) from error


if __name__ == "__main__":
    run_command(main)
