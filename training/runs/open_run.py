"""Create a run, and open it to train it. Starting is resuming at step 0: a new run gets a folder and is then opened."""

import codecs
import contextlib
import dataclasses
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from cli.errors import UserError, explain
from data.config import DataConfig
from data.corpus import Corpus, open_corpus
from data.files import remove_partial_files
from data.sources import MissingTextError
from training.config import Config
from training.config_file import build_config, load_config, to_yaml
from training.identity import earlier_values, identity_of
from training.runs.checkpoint import Checkpoint, CheckpointError, load_checkpoint, save_checkpoint
from training.runs.differences import adopt, changed_settings, check_resumable, open_ancestor
from training.runs.metrics import read_newest_record
from training.runs.run_folder import RunFolder
from training.runtime import has_fast_bfloat16, prepare_machine
from training.state import TrainingError, TrainingState


def create_run(config_file: Path, overrides: Sequence[str]) -> RunFolder:
    """Return the folder of a new run, with its settings; `open_run` starts it.

    Raises UserError, before there is a folder, if the settings cannot work on this machine and with this text.
    """
    config, _ = prepare_text(load_config(config_file, overrides))
    prepare_machine(config)
    run = RunFolder.create(config.train.name or config_file.stem)
    run.lay_out(to_yaml(config))
    return run


@contextlib.contextmanager
def open_run(run: RunFolder, overrides: Sequence[str]) -> Iterator[tuple[RunFolder, TrainingState, list[str]]]:
    """Yield the locked folder of a run, its state, and the settings that have changed since the last session.

    overrides: of the run's settings. Raises UserError if the run cannot be opened with them. Inside the context, an
    error of the machine becomes a TrainingError that says how to resume.
    """
    with run.lock():
        checkpoint, warnings = load_newest(run)
        state = _open_state(run, checkpoint, overrides)
        changes = _resume(state, checkpoint) if checkpoint else []
        for warning in [*warnings, *doubts(state)]:
            _warn(warning)
        try:
            if changes or not (state.is_finished() and run.is_finished()):  # or there is nothing to do
                run.begin_session(state, changes, is_new=not checkpoint or state.origin != checkpoint.origin)
            yield run, state, changes
        except TrainingError:
            raise
        except (OSError, UserError) as error:
            run.check_held()  # a folder that is gone is the reason of other errors
            raise TrainingError(f"{explain(error)}; fix this, then resume with --resume {run.path}") from error


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


def _open_state(run: RunFolder, checkpoint: Checkpoint | None, overrides: Sequence[str]) -> TrainingState:
    """Return the state of a run at step 0, with the settings of its checkpoint or, before the first, of its folder."""
    if checkpoint:
        config = build_config(dataclasses.asdict(checkpoint.config), overrides)
    else:
        config = load_config(run.config, overrides)
    corpus = open_text_of_run(config.data, "add data.corpus=NEW_PATH")
    if checkpoint:
        check_resumable(checkpoint, config, corpus)
    state = TrainingState(config, corpus, prepare_machine(config))
    if config.train.ancestor and not checkpoint:
        adopt(state, open_ancestor(config))
    return state


def _resume(state: TrainingState, checkpoint: Checkpoint) -> list[str]:
    """Load a checkpoint into a new state, and return the settings that have changed since it was saved."""
    state.load_state_dict({"progress": checkpoint.progress, "tensors": checkpoint.tensors})
    state.origin["ancestor"] = checkpoint.origin["ancestor"]
    now = identity_of(state.config, state.origin)
    state.origin["earlier"] = earlier_values(now, checkpoint.identity, checkpoint.step)
    return [*changed_settings(checkpoint.config, state.config).values()]


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


def _warn(warning: str) -> None:
    print(f"train.py: warning: {warning}", file=sys.stderr)


def prepare_text(config: Config) -> tuple[Config, Corpus]:
    """Return the config of a new run, and its text.

    With `train.ancestor`, the config also has the ancestor's characters. Raises UserError if the text is missing or too
    short, or the ancestor has another shape.
    """
    ancestor = open_ancestor(config) if config.train.ancestor else None
    data = config.data
    if ancestor:
        characters = {*(data.characters or ""), *ancestor.vocabulary.characters}
        data = dataclasses.replace(data, characters="".join(sorted(characters)))
    corpus = open_corpus(data)
    corpus.split(data.split, config.model.block_size)
    return dataclasses.replace(config, data=data), corpus


def open_text_of_run(data: DataConfig, advice: str) -> Corpus:
    """Open the text of a run. Raises UserError with the advice if the text was moved."""
    try:
        return open_corpus(data)
    except MissingTextError as error:
        raise UserError(f"{error}; if you moved the text, {advice}") from None
