"""How long a run will take: a few of its steps, measured on random characters. Nothing is written."""

import dataclasses
import statistics
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cli.errors import UserError
from data.corpus import Corpus
from data.sources import NAMED, Download, find_files
from data.vocabulary import Vocabulary
from training.config import Config
from training.config_file import load_config
from training.evaluation import evaluate
from training.optim.schedule import context_length
from training.runs.ancestor import open_ancestor
from training.runtime import (
    find_compiler,
    in_new_process,
    keep_freed_memory,
    peak_memory_bytes,
    prepare_machine,
    processor_name,
)
from training.state import TrainingState
from training.step import TrainingStep

VOCABULARY_SIZE = 65  # that of tiny Shakespeare; another one hardly matters
WARM_UP, STEPS, ENOUGH_S = 2, 7, 6.0  # steps measured at each context length; slow ones are fewer


@dataclass(frozen=True)
class Estimate:
    """The expected seconds and memory of a run.

    once_s: of the start and of compiling. steps_s: of all steps. evaluations_s: of all evaluations.
    """

    once_s: float
    steps_s: float
    evaluations_s: float
    memory_bytes: int

    @property
    def seconds(self) -> float:
        return self.once_s + self.steps_s + self.evaluations_s


def print_estimates(file: Path, config: Config, *, imports_s: float) -> None:
    """Measure and print the expected time and memory of a run, and of faster ways to train.

    imports_s: the seconds that the imports of the command took.
    """
    if config.train.ancestor:
        open_ancestor(config)  # raises its errors
    if config.train.processes > 1:
        raise UserError("--estimate measures one process; add train.processes=1")
    text_bytes(config.data.corpus)  # raises an error if there is no such text
    runtime = prepare_machine(config)
    print(f"On {runtime.device}, {str(runtime.dtype).removeprefix('torch.')}, {processor_name()}:")
    plain = _print_row(file.name, config, imports_s)
    if not config.train.compile and find_compiler(runtime.device.type):
        compiled_config = dataclasses.replace(config, train=dataclasses.replace(config.train, compile=True))
        compiled = _print_row("  with train.compile=true", compiled_config, imports_s)
        saved_s = (plain.steps_s - compiled.steps_s) / config.train.max_steps
        pays_after = (compiled.once_s - plain.once_s) / saved_s if saved_s > 0 else float("inf")
        pays = f"pays after {pays_after:,.0f} steps" if saved_s > 0 else "is no faster"
        print(f"  Compiling {pays}; this run has {config.train.max_steps:,} steps.")
    fast = file.with_name("shakespeare_fast.yaml")
    if file.name == "shakespeare.yaml" and fast.exists():
        _print_row(fast.name, load_config(fast, [f"train.device={config.train.device}"]), imports_s)


def _print_row(name: str, config: Config, imports_s: float) -> Estimate:
    if sys.stderr.isatty():
        print(f"Measuring {name.strip()} ...", end="\r", file=sys.stderr, flush=True)
    measured: Estimate = in_new_process(measure, config)
    estimate = dataclasses.replace(measured, once_s=measured.once_s + imports_s)
    minutes, seconds = divmod(round(estimate.seconds), 60)
    print(f"{name:28} {minutes:5d} min {seconds:2d} s  {estimate.memory_bytes / 1e6:7,.0f} MB", flush=True)
    return estimate


def measure(config: Config) -> Estimate:
    """Measure some steps at each context length of a run, and a part of an evaluation. Call this in a new process."""
    keep_freed_memory()
    began_s = time.perf_counter()
    runtime = prepare_machine(config)
    ids = np.random.default_rng(0).integers(VOCABULARY_SIZE, size=1_000_000, dtype=np.uint8)
    vocabulary = Vocabulary(map(chr, range(VOCABULARY_SIZE)))
    corpus = Corpus("", "", vocabulary, ids)  # type: ignore[arg-type] # an array is sliced like a text
    state = TrainingState(config, corpus, runtime)
    step = TrainingStep(state, ids)
    once_s, steps_s = time.perf_counter() - began_s, 0.0
    max_steps = config.train.max_steps
    for length, n_steps in Counter(context_length(config, step) for step in range(max_steps)).items():
        first = next(i for i in range(max_steps) if context_length(config, i) == length)
        seconds: list[float] = []
        while len(seconds) < WARM_UP + 1 or (len(seconds) < WARM_UP + STEPS and sum(seconds) < ENOUGH_S):
            state.progress.step = first
            began_s = time.perf_counter()
            step.run()
            state.loss_sum.item()  # waits for a GPU
            seconds.append(time.perf_counter() - began_s)
        typical_s = statistics.median(seconds[WARM_UP:])
        once_s += sum(seconds[:WARM_UP]) - WARM_UP * typical_s  # allocations and compiling
        steps_s += n_steps * typical_s
    n_evaluated = 16_384
    for _ in range(2):  # the first allocates
        began_s = time.perf_counter()
        evaluate(state.average.model, ids, config.model.block_size, runtime, n_characters=n_evaluated)
        evaluation_s = time.perf_counter() - began_s
    n_evaluations = -(-max_steps // config.train.eval_every_steps)
    share = n_validation_characters(config) / n_evaluated
    memory = peak_memory_bytes(runtime.device)
    return Estimate(once_s, steps_s, n_evaluations * share * evaluation_s, memory)


def n_validation_characters(config: Config) -> int:
    """Return how many characters each evaluation scores; a text is taken to have one byte per character."""
    data, (_, share, _) = config.data, config.data.split
    if data.val_corpus is not None:
        n = text_bytes(data.val_corpus)
    else:
        n = round(share * text_bytes(data.corpus)) if share < 1 else int(share)
    return min(n, config.train.eval_characters or n)


def text_bytes(corpus: str) -> int:
    """Return the size of a corpus, without a download."""
    source = NAMED.get(corpus)
    if isinstance(source, Download):
        return source.n_bytes
    return sum(path.stat().st_size for path in find_files(corpus))
