"""Open a run to train it: a new one from a config, or one to resume from its folder."""

import codecs
import contextlib
import dataclasses
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from cli.errors import UserError
from data.corpus import open_corpus
from data.files import remove_partial_files
from data.sources import MissingTextError
from training.config import Config
from training.config_file import build_config, load_config
from training.identity import earlier_values, identity_of
from training.processes import first_shared_step, joined_processes
from training.runs.checkpoint import Checkpoint, CheckpointError, load_checkpoint, save_checkpoint
from training.runs.differences import adopt, changed_settings, check_resumable, open_ancestor
from training.runs.find_checkpoint import find_run
from training.runs.metrics import read_newest_record
from training.runs.run_folder import RunFolder
from training.runtime import has_fast_bfloat16, n_processes, prepare_machine
from training.state import TrainingState
from training.step import TrainingStep


@contextlib.contextmanager
def open_run(
    config_file: Path | None, folder: Path | None, overrides: Sequence[str]
) -> Iterator[tuple[RunFolder, TrainingState, TrainingStep, list[str]]]:
    """Yield the locked folder of a run, its state, its step, and the settings that have changed since the last session.

    config_file: of a new run. folder: of a run to resume. overrides: of the settings of either. Raises UserError if the
    run cannot be opened with them; then a new run has no folder. Inside the context, an error of the machine becomes a
    TrainingError that says how to resume.
    """
    several = n_processes() > 1  # of torchrun
    with joined_processes() if several else contextlib.nullcontext():
        if config_file:
            opened = start(config_file, overrides)
        else:
            assert folder, "neither a config nor a folder"
            opened = resume(find_run(folder), overrides)
        with opened as (run, state, changes):
            for doubt in doubts(state):
                print(f"train.py: warning: {doubt}", file=sys.stderr)
            yield run, state, first_shared_step(state) if several else TrainingStep(state), changes


@contextlib.contextmanager
def start(config_file: Path, overrides: Sequence[str]) -> Iterator[tuple[RunFolder, TrainingState, list[str]]]:
    """Open a new run; see `open_run`."""
    state = new_state(load_config(config_file, overrides))
    run = RunFolder.create(state.config.train.name or config_file.stem)
    with run.lock(), run.session(state):
        yield run, state, []


@contextlib.contextmanager
def resume(run: RunFolder, overrides: Sequence[str]) -> Iterator[tuple[RunFolder, TrainingState, list[str]]]:
    """Open a run again, or for the first time if it has nothing but its settings; see `open_run`."""
    with run.lock():
        checkpoint, warnings = load_newest(run)
        for warning in warnings:
            print(f"train.py: warning: {warning}", file=sys.stderr)
        if checkpoint and not checkpoint.step and overrides:
            checkpoint = None  # nothing is trained yet, and another seed has other first weights
        if checkpoint:
            state, changes = continued_state(checkpoint, overrides)
        else:
            state, changes = new_state(load_config(run.config, overrides)), []
        has_same_origin = checkpoint is not None and state.origin == checkpoint.origin
        with run.session(state, changes, is_new=not has_same_origin):
            yield run, state, changes


def new_state(config: Config) -> TrainingState:
    """Return the state of a run at step 0. Raises UserError if its settings cannot work here and with their text."""
    runtime = prepare_machine(config)
    config, ancestor = with_ancestor(config)
    state = TrainingState(config, open_corpus(config.data), runtime)
    if ancestor:
        adopt(state, ancestor)
    return state


def continued_state(checkpoint: Checkpoint, overrides: Sequence[str]) -> tuple[TrainingState, list[str]]:
    """Return the state that a checkpoint holds, and the settings that have changed since it was saved."""
    config = build_config(dataclasses.asdict(checkpoint.config), overrides)
    try:
        corpus = open_corpus(config.data)
    except MissingTextError as error:
        raise UserError(f"{error}; if you moved the text, add data.corpus=NEW_PATH") from None
    check_resumable(checkpoint, config, corpus)
    state = TrainingState(config, corpus, prepare_machine(config))
    state.load_state_dict({"progress": checkpoint.progress, "tensors": checkpoint.tensors})
    state.origin["ancestor"] = checkpoint.origin["ancestor"]
    now = identity_of(state.config, state.origin)
    state.origin["earlier"] = earlier_values(now, checkpoint.identity, checkpoint.step)
    return state, [*changed_settings(checkpoint.config, state.config).values()]


def with_ancestor(config: Config) -> tuple[Config, Checkpoint | None]:
    """Return the config of a new run with the characters of its ancestor, if it has one, and the ancestor."""
    if not config.train.ancestor:
        return config, None
    ancestor = open_ancestor(config)
    characters = {*(config.data.characters or ""), *ancestor.vocabulary.characters}
    data = dataclasses.replace(config.data, characters="".join(sorted(characters)))
    return dataclasses.replace(config, data=data), ancestor


def load_newest(run: RunFolder) -> tuple[Checkpoint | None, list[str]]:
    """Return the newest intact checkpoint, or None if the run has not begun, and a warning for each damaged one.

    A damaged one is renamed to NAME.damaged, so that the next save keeps an intact one as the previous. If the
    returned one is not the latest, it becomes that: a process may have been killed after it saved the best. Raises
    CheckpointError if the run has begun and no checkpoint is intact: a run never silently starts from scratch.
    """
    for folder in (run.path, run.checkpoints):
        remove_partial_files(folder)  # of a process that was killed
    intact, damaged = {}, {}
    for path in filter(Path.exists, (run.best, run.latest, run.previous)):
        if path == run.previous and run.latest in intact:
            break  # it replaces a damaged one
        try:
            intact[path] = load_checkpoint(path)
        except CheckpointError as error:
            damaged[path] = str(error)
    if not intact:
        if not damaged and not read_newest_record(run.metrics).get("step"):
            return None, []
        reasons = "; ".join(damaged.values()) or "its files are missing"
        raise CheckpointError(
            f"{run.path}: no checkpoint to resume from ({reasons}); start the run again with --config"
        )
    place, newest = sorted(intact.items(), key=lambda item: item[1].step)[-1]  # of equal steps, the one saved last
    for path in damaged:
        path.replace(path.with_suffix(".damaged"))
    if place != run.latest:
        save_checkpoint(newest, run.latest, keep=run.previous)
    resumed = f"resuming from step {newest.step:,}"
    return newest, [f"{why}; it is now called {path.stem}.damaged; {resumed}" for path, why in damaged.items()]


def doubts(state: TrainingState) -> Iterator[str]:
    """Yield warnings about what is probably a mistake of the user."""
    config, runtime, corpus = state.config, state.runtime, state.corpus
    if config.train.dtype == "bfloat16" and not has_fast_bfloat16(runtime.device):
        advice = "this processor multiplies bfloat16 matrices more slowly than float32 ones; train.dtype=auto is faster"
        yield f"train.dtype=bfloat16: {advice}"
    if shutil.which("nvidia-smi") and not torch.backends.cuda.is_built():
        yield "this machine has nvidia-smi, but its PyTorch is a CPU build; README.md says how to use the GPU"
    if config.optim.warmup_steps > config.train.max_steps:
        yield "optim.warmup_steps is longer than the run (train.max_steps); lower it"
    if "\0" in corpus.vocabulary.characters:
        other = "utf-32-le" if codecs.lookup(corpus.encoding).name == "utf-16-le" else "utf-16-le"
        yield f"the text {corpus.name} contains NUL characters; set data.encoding, such as {other}"
