"""Open a run to train it: a new one from a config, or one to resume from its folder."""

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
from training.runs.differences import adopt, changed_settings, check_resumable, with_ancestor
from training.runs.find_checkpoint import find_run
from training.runs.metrics import read_newest_record
from training.runs.run_folder import RunFolder
from training.runtime import n_processes, prepare_machine
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
    changes: list[str] = []
    with contextlib.ExitStack() as contexts:
        if several:
            contexts.enter_context(joined_processes())
        if config_file:
            state, is_new = new_state(load_config(config_file, overrides)), True
            run = RunFolder.create(state.config.train.name or config_file.stem)
            contexts.enter_context(run.lock())
        else:
            assert folder, "neither a config nor a folder"
            run = find_run(folder)
            contexts.enter_context(run.lock())
            state, changes, is_new = resumed_state(run, overrides)
        contexts.enter_context(run.session(state, changes, is_new=is_new))
        if shutil.which("nvidia-smi") and not torch.backends.cuda.is_built():
            advice = "but its PyTorch is a CPU build; README.md says how to use the GPU"
            print(f"train.py: warning: this machine has nvidia-smi, {advice}", file=sys.stderr)
        yield run, state, first_shared_step(state) if several else TrainingStep(state), changes


def resumed_state(run: RunFolder, overrides: Sequence[str]) -> tuple[TrainingState, list[str], bool]:
    """Return the state that a run goes on from, the settings that have changed, and whether its identity is new."""
    checkpoint = load_newest(run)
    if not checkpoint or (overrides and not checkpoint.step):  # nothing is trained: another seed has other weights
        return new_state(load_config(run.config, overrides)), [], True
    state, changes = continued_state(checkpoint, overrides)
    return state, changes, state.origin != checkpoint.origin


def new_state(config: Config) -> TrainingState:
    """Return the state of a run at step 0. Raises UserError if its settings cannot work here and with their text."""
    runtime, ancestor = prepare_machine(config), None
    if config.train.ancestor:
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
    state.load(checkpoint.progress, checkpoint.tensors)
    state.origin["ancestor"] = checkpoint.origin["ancestor"]
    now = identity_of(state.config, state.origin)
    state.origin["earlier"] = earlier_values(now, checkpoint.identity, checkpoint.step)
    return state, [*changed_settings(checkpoint.config, state.config).values()]


def load_newest(run: RunFolder) -> Checkpoint | None:
    """Return the newest intact checkpoint, or None if the run has not begun. Print a warning for each damaged one.

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
            return None
        reasons = "; ".join(damaged.values()) or "its files are missing"
        raise CheckpointError(
            f"{run.path}: no checkpoint to resume from ({reasons}); start the run again with --config"
        )
    place, newest = sorted(intact.items(), key=lambda item: item[1].step)[-1]  # of equal steps, the one saved last
    for path, why in damaged.items():
        path.replace(path.with_suffix(".damaged"))
        what = f"{why}; it is now called {path.stem}.damaged; resuming from step {newest.step:,}"
        print(f"train.py: warning: {what}", file=sys.stderr)
    if place != run.latest:
        save_checkpoint(newest, run.latest, keep=run.previous)
    return newest
