"""Trains a character-level GPT: python train.py --config configs/shakespeare.yaml"""

import signal
import time

STARTED_S = time.perf_counter()  # before the imports, which are part of what a run costs
if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C while PyTorch is imported is no traceback

import argparse
import contextlib
import dataclasses
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from data.batches import TrainingBatches
from data.corpus import Corpus, open_corpus
from model.generate import Sampling, generate
from training.checkpoint import save_checkpoint
from training.command import CommandParser, explain, is_out_of_memory, prepare_streams, run_command
from training.config import Config
from training.config_file import build_config, load_config, to_yaml
from training.evaluation import evaluate
from training.report import Report
from training.run_folder import RunFolder
from training.runtime import (
    Runtime,
    check_can_compile,
    choose_runtime,
    keep_freed_memory,
    make_compiled_code_repeatable,
)
from training.state import TrainingError, TrainingState
from training.step import TrainingStep
from training.stopping import StopRequest
from training.tensorboard import check_tensorboard


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status: 2 for a mistake of the user's, 1 for a run that failed midway."""
    options = parse(arguments)
    prepare_streams()
    try:
        keep_freed_memory()
        if options.resume:
            return resume(options.resume, options.overrides)
        return start(options.config, options.overrides)
    except (ValueError, OSError) as error:
        print(f"train.py: {explain(error)}", file=sys.stderr)
        return 2
    except TrainingError as error:
        print(f"train.py: {error}", file=sys.stderr)
        return 1
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        print("train.py: out of memory; lower train.batch_size, model.block_size or model.n_embd", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = CommandParser(
        prog="train.py",
        description="Trains a character-level GPT into runs/NAME/, or goes on with a run that was stopped.",
        epilog="examples: train.py --config configs/shakespeare.yaml model.n_head=8 train.max_steps=500  |  "
        "train.py --config configs/selmere.yaml data.corpus=my.txt  |  train.py --resume runs/shakespeare",
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--config", type=Path, metavar="FILE", help="start a run from the settings of a YAML file")
    source.add_argument("--resume", type=Path, metavar="FOLDER", help="go on with the run of a folder in runs/")
    parser.add_argument(
        "overrides", nargs="*", metavar="section.key=value", help="settings that replace those of the file or the run"
    )
    return parser.parse_intermixed_args(arguments)


def start(config_path: Path, overrides: Sequence[str]) -> int:
    """A new run in a new folder."""
    config = load_config(config_path, overrides)
    corpus = open_corpus(config.data)
    name = config.train.name or config_path.stem
    if corpus.fallback_reason:
        warn_of_fallback(config, corpus)
        name = f"{name}-on-{Path(corpus.name).stem}"
        config = dataclasses.replace(config, data=dataclasses.replace(config.data, corpus=corpus.name, fallback=None))
    runtime = prepare(config)
    corpus.split(config.data.val_fraction, config.model.block_size)  # a text too short leaves no folder behind
    state = TrainingState(config, corpus, runtime)
    run = RunFolder.create(name, to_yaml(config))
    with run.lock():
        return train(state, run, runtime)


def resume(folder: Path, overrides: Sequence[str]) -> int:
    """The run of a folder from its newest whole checkpoint on."""
    run = RunFolder.find(folder)
    with run.lock():
        checkpoint, warnings = run.load_newest()
        for warning in warnings:
            print(f"train.py: warning: {warning}; going on from step {checkpoint.step:,}", file=sys.stderr)
        config = build_config(checkpoint.settings, overrides)
        runtime = prepare(config)
        state = TrainingState(config, open_corpus(config.data), runtime)
        changes = state.restore(checkpoint)
        run.config.write_text(to_yaml(config), encoding="utf-8")
        run.remove_partial_files()
        run.rewind(state.progress.log_sizes)
        return train(state, run, runtime, changes=changes)


def prepare(config: Config) -> Runtime:
    """The machine as the config wants it. Raises ValueError where it lacks something."""
    runtime = choose_runtime(config.train.device, config.train.dtype)
    if config.train.compile:
        check_can_compile(runtime.device)
        if runtime.device.type == "cpu":
            make_compiled_code_repeatable()
    if config.train.tensorboard:
        check_tensorboard()
    return runtime


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
    report = Report(state, run, started_s=STARTED_S, tokens_per_step=step.tokens)
    report.introduce(runtime, n_train=len(train_ids), n_val=len(val_ids) - 1, changes=changes)

    def due(every_steps: int) -> bool:
        return progress.step % every_steps == 0 or progress.step == settings.max_steps

    def save(*paths: Path) -> None:
        progress.elapsed_s, progress.log_sizes = report.elapsed_s, run.sizes()
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
    prompt = torch.from_numpy(vocabulary.encode(vocabulary.default_prompt)).long()[None].to(model.head.weight.device)
    model.eval()
    settings = state.config.train
    ids = generate(model, prompt, settings.sample_length, sampling=Sampling(temperature=0.8), seed=settings.seed)
    text = vocabulary.decode(int(i) for i in ids)
    model.train()
    return text


def warn_of_fallback(config: Config, corpus: Corpus) -> None:
    line = "!" * 100
    print(
        f"{line}\nWARNING: {corpus.fallback_reason}.\n"
        f"WARNING: this run trains on the corpus {corpus.name} INSTEAD OF {config.data.corpus}; "
        f"its figures are not those of {config.data.corpus}.\n{line}",
        file=sys.stderr,
    )


if __name__ == "__main__":
    run_command(main)
