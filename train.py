"""Trains a character-level GPT: python train.py --config configs/shakespeare.yaml"""

import signal
import time

STARTED_S = time.perf_counter()  # before the imports, which are part of what a run costs
if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C while PyTorch is imported is no traceback

import training.openmp  # noqa: F401, I001 - before torch

import argparse
import contextlib
import dataclasses
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from data.batches import TrainingBatches
from data.corpus import open_corpus
from model.generate import Sampling, generate
from training.checkpoint import Checkpoint, save_checkpoint
from training.command import CommandParser, explain, run_command, tell_mistakes
from training.config_file import build_config, load_config, naming, read_settings, to_yaml
from training.evaluation import evaluate
from training.preparation import prepare_machine, prepare_text
from training.report import Report
from training.run_folder import RunFolder
from training.runtime import Runtime, keep_freed_memory
from training.state import TrainingError, TrainingState
from training.step import TrainingStep
from training.stopping import StopRequest
from training.sweep.launch import is_sweep, resume_sweep, start_sweep
from training.sweep.plan import make_plan


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status: 2 for a mistake of the user's, 1 for a run that failed midway."""
    options = parse(arguments)

    def work() -> int:
        keep_freed_memory()
        try:
            return resume(options) if options.resume else start(options)
        except TrainingError as error:
            print(f"train.py: {error}", file=sys.stderr)
            return 1

    return tell_mistakes("train.py", work, memory="lower train.batch_size, model.block_size or model.n_embd")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = CommandParser(
        prog="train.py",
        description="Trains a character-level GPT into runs/NAME/, or all variants of a sweep into folders there; "
        "or goes on with what was stopped.",
        epilog="examples: train.py --config configs/shakespeare.yaml model.n_head=8 train.max_steps=500  |  "
        "train.py --config configs/selmere.yaml data.corpus=my.txt  |  train.py --resume runs/shakespeare  |  "
        "train.py --config configs/shakespeare.yaml --sweep model.n_head=1,2,4 train.seed=0..3",
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--config", type=Path, metavar="FILE", help="start a run from the settings of a YAML file")
    source.add_argument("--resume", type=Path, metavar="FOLDER", help="go on with the run or sweep in a folder")
    parser.add_argument(
        "overrides", nargs="*", metavar="section.key=value", help="settings that replace those of the file or the run"
    )
    parser.add_argument(
        "--sweep",
        nargs="+",
        action="extend",
        metavar="section.key=values",
        help="run every combination, as in model.n_head=1,2,4",
    )
    parser.add_argument("--workers", type=int, metavar="N", help="runs of a sweep at a time, sharing cores or GPUs (1)")
    options = parser.parse_intermixed_args(arguments)
    if options.sweep and options.resume:
        parser.error("--sweep needs --config; to add values to a sweep, give its first command again with more of them")
    if options.workers is not None and options.workers < 1:
        parser.error("--workers must be at least 1")
    return options


def start(options: argparse.Namespace) -> int:
    """A new run in a new folder, or all runs of a sweep."""
    settings = read_settings(options.config)
    with naming(options.config):
        plan = make_plan(settings, options.overrides, options.sweep)
        config = None if plan else build_config({k: v for k, v in settings.items() if k != "sweep"}, options.overrides)
    if plan:
        return start_sweep(plan, options.config.stem, options.workers or 1)
    check_workers(options)
    config, corpus, name = prepare_text(config, config.train.name or options.config.stem)
    runtime = prepare_machine(config)
    state = TrainingState(config, corpus, runtime)
    run = RunFolder.create(name, to_yaml(config))
    with run.lock():
        return train(state, run, runtime)


def resume(options: argparse.Namespace) -> int:
    """The run of a folder from its newest whole checkpoint on, or a sweep from where it stands."""
    if is_sweep(options.resume):
        return resume_sweep(options.resume, options.overrides, options.workers or 1)
    check_workers(options)
    run = RunFolder.find(options.resume)
    with run.lock():
        checkpoint = newest_checkpoint(run)
        config = build_config(checkpoint.settings if checkpoint else read_settings(run.config), options.overrides)
        runtime = prepare_machine(config)
        corpus = open_corpus(dataclasses.replace(config.data, fallback=None))  # its own text or none
        state = TrainingState(config, corpus, runtime)
        changes = state.restore(checkpoint) if checkpoint else []
        run.write_config(to_yaml(config))
        run.remove_partial_files()
        run.rewind(state.progress.log_sizes)
        return train(state, run, runtime, changes=changes)


def newest_checkpoint(run: RunFolder) -> Checkpoint | None:
    """What to go on from; None for a run that ended before its first checkpoint, which starts again and loses nothing.

    Raises CheckpointError where there was one, and it is damaged or gone.
    """
    if not run.has_saved():
        settings = load_config(run.config).train
        first_save = min(settings.checkpoint_every_steps, settings.eval_every_steps, settings.max_steps)
        record = run.newest_record()
        if record.get("step", 0) <= first_save and not record.get("finished"):
            return None
    checkpoint, warnings = run.load_newest()
    for warning in warnings:
        print(f"train.py: warning: {warning}; going on from step {checkpoint.step:,}", file=sys.stderr)
    return checkpoint


def check_workers(options: argparse.Namespace) -> None:
    if options.workers:
        raise ValueError("--workers is for sweeps, and this is a single run; vary a setting with --sweep")


def train(state: TrainingState, run: RunFolder, runtime: Runtime, *, changes: Sequence[str] = ()) -> int:
    """Trains from where the state stands to the end of the run; returns the command's exit status.

    changes: settings that differ from those of the run so far. Raises TrainingError where the run cannot go on.
    """
    settings, block_size, progress = state.config.train, state.config.model.block_size, state.progress
    train_ids, val_ids = state.corpus.split(state.config.data.val_fraction, block_size)
    batches = TrainingBatches(
        train_ids, block_size=block_size, batch_size=settings.batch_size, seed=settings.seed, device=runtime.device
    )
    step = TrainingStep(state, batches, runtime)
    report = Report(state, run, runtime, started_s=STARTED_S, tokens_per_step=step.tokens)
    report.introduce(n_train=len(train_ids), n_val=len(val_ids) - 1, changes=changes)

    def due(every_steps: int) -> bool:
        return progress.step % every_steps == 0 or progress.step == settings.max_steps

    def save(*paths: Path) -> None:
        progress.elapsed_s, progress.log_sizes = report.elapsed_s, run.sizes()
        progress.peak_memory_bytes = report.peak_memory_bytes
        save_checkpoint(state.snapshot(), *paths)

    sample = ""
    with contextlib.closing(report), StopRequest() as stop, explained(run):
        while not state.is_finished() and not stop.signal:
            step.run()
            report.step()
            if due(settings.log_every_steps):
                report.training()
            with report.pause():
                is_best = False
                if due(settings.eval_every_steps):
                    state.check_finite()
                    result = evaluate(state.model, val_ids, block_size, runtime)
                    sample = write_sample(state)
                    is_best = state.note_evaluation(result.loss)
                    report.evaluation(result, sample, is_best=is_best)
                if is_best:
                    save(run.best, run.latest)
                elif due(settings.checkpoint_every_steps) or state.is_finished():
                    save(run.latest)
        if state.is_finished():
            report.finished(sample)
            return 0
        save(run.latest)
        report.stopped(stop.signal.name)
        return 128 + stop.signal


@contextlib.contextmanager
def explained(run: RunFolder) -> Iterator[None]:
    """What a machine lacks in the middle of a run, as a TrainingError that says what to do."""
    try:
        yield
    except OSError as error:
        saved = f"go on with --resume {run.path}" if run.latest.exists() else "start again: nothing was saved yet"
        raise TrainingError(f"{explain(error)}; once that is mended, {saved}") from error
    except ValueError as error:  # no mistake of the user's any more
        raise RuntimeError(str(error)) from error


def write_sample(state: TrainingState) -> str:
    """What the network writes now; the random numbers follow from the seed, so that samples can be compared."""
    vocabulary, model = state.corpus.vocabulary, state.model
    prompt = torch.from_numpy(vocabulary.encode(vocabulary.default_prompt)).long()[None].to(model.lm_head.weight.device)
    model.eval()
    settings = state.config.train
    ids = generate(model, prompt, settings.sample_length, sampling=Sampling(temperature=0.8), seed=settings.seed)
    text = vocabulary.decode(int(i) for i in ids)
    model.train()
    return text


if __name__ == "__main__":
    run_command(main)
