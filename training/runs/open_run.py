"""Open a run to train it. Starting is resuming at step 0: a new run gets a folder, and the rest is the same."""

import contextlib
import dataclasses
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import torch

from cli.errors import UserError, error_file, explain
from data.config import DataConfig
from data.corpus import Corpus, open_corpus
from data.sources import MissingTextError
from model.ngrams import MOST
from training.config import Config
from training.config_file import build_config, load_config, to_yaml
from training.processes import OneProcess, naming_lost
from training.runs.checkpoint import Checkpoint, CheckpointError
from training.runs.differences import changed_settings, check_resumable, forbidden_changes
from training.runs.run_folder import RunFolder, open_checkpoint
from training.runs.saving import save
from training.runtime import prepare_machine, reasons_to_be_slow
from training.state import TrainingError, TrainingState

BY_CHARACTER = ("token_embedding.weight", "lm_head.weight")  # weights with one row for each character


@contextlib.contextmanager
def open_run(
    config_file: Path | None, folder: Path | None, overrides: Sequence[str], processes: OneProcess
) -> Iterator[tuple[RunFolder, TrainingState, list[str]]]:
    """Yield the locked folder of a run, its state, and the settings that have changed since the last session.

    config_file: of a new run; or folder: of a run to resume. overrides: of the settings of either. Every process reads
    the folder; process 0 locks and writes it. Raises UserError if the run cannot be opened.

    Inside the context, an error of the machine becomes a TrainingError that says how to resume.
    """
    state: TrainingState | None = None

    def create() -> Path:
        nonlocal state
        assert config_file
        state, name = _new_state(config_file, overrides, processes)
        return RunFolder.create(name, to_yaml(state.config)).path

    folder = folder or processes.share_folder(create)
    run = RunFolder.find(folder, writes=processes.is_main)
    with run.lock(), error_file(run.error):
        checkpoint, warnings = run.load_newest()
        _warn(run, warnings)
        state = state or _state_of(run, checkpoint, [] if config_file else overrides, processes)
        changes = []
        if checkpoint:
            changes = [*changed_settings(checkpoint.config, state.config).values()]
            state.load_state_dict({"progress": checkpoint.progress, "tensors": checkpoint.tensors})
        elif state.config.train.ancestor:
            adopt(state, open_ancestor(state.config))
        _warn(run, _doubts(run, checkpoint, state))
        with _explained(run, processes.rank):
            if changes or not (state.is_finished() and run.is_finished()):  # or there is nothing to do
                run.begin_session(to_yaml(state.config), state.progress.step, state.progress.log_sizes)
            if not checkpoint:
                save(run, state, elapsed_s=0.0)  # whatever happens from now on, the run can be resumed
            yield run, state, changes


def _new_state(config_file: Path, overrides: Sequence[str], processes: OneProcess) -> tuple[TrainingState, str]:
    """Return the state of a new run, and the run's name. Nothing is written before this has succeeded."""
    config = load_config(config_file, overrides)
    processes.start_others(config.train.processes)
    config, corpus, name = prepare_text(config, config.train.name or config_file.stem)
    return TrainingState(config, corpus, prepare_machine(config, processes)), name


def _state_of(
    run: RunFolder, checkpoint: Checkpoint | None, overrides: Sequence[str], processes: OneProcess
) -> TrainingState:
    """Return the state of a run that exists, at step 0, with the settings of its checkpoint or else of its folder."""
    if checkpoint:
        config = build_config(dataclasses.asdict(checkpoint.config), overrides)
    else:
        config = load_config(run.config, overrides)
    processes.start_others(config.train.processes)
    corpus = open_text_of_run(config.data, "add data.corpus=NEW_PATH")
    if checkpoint:
        check_resumable(checkpoint, config, corpus)
    return TrainingState(config, corpus, prepare_machine(config, processes))


def _warn(run: RunFolder, warnings: Iterable[str]) -> None:
    for warning in warnings if run.writes else ():
        print(f"train.py: warning: {warning}", file=sys.stderr)


def _was_edited(run: RunFolder, checkpoint: Checkpoint) -> bool:
    """Return whether config.yaml has other values than the checkpoint. Earlier versions had fewer settings."""
    with contextlib.suppress(UserError):
        return load_config(run.config) != checkpoint.config
    return True


def _doubts(run: RunFolder, checkpoint: Checkpoint | None, state: TrainingState) -> Iterator[str]:
    """Yield warnings about probable mistakes of the user."""
    yield from reasons_to_be_slow(state.runtime)
    if checkpoint and _was_edited(run, checkpoint):
        advice = f"to change settings, name them, as in --resume {run.path} train.max_steps=4000"
        yield f"{run.config} was edited, which has no effect; {advice}"
    if state.config.optim.warmup_steps > state.config.train.max_steps:
        yield "optim.warmup_steps is longer than the run (train.max_steps); lower it"
    text = state.corpus.vocabulary.decode(state.corpus.ids[:1000])
    if {"\0"} in (set(text[::2]), set(text[1::2])):
        yield f"every second character of {state.corpus.name} is NUL; set data.encoding, such as utf-16-le"


@contextlib.contextmanager
def _explained(run: RunFolder, rank: int) -> Iterator[None]:
    """Turn an error of the machine during a run into a TrainingError that says what to do."""
    try:
        with naming_lost(rank):
            yield
    except TrainingError:
        raise
    except (OSError, UserError) as error:
        raise TrainingError(f"{explain(error)}; fix this, then resume with --resume {run.path}") from error


def prepare_text(config: Config, name: str) -> tuple[Config, Corpus, str]:
    """Return the config of a new run, its text and its name.

    If the corpus is the fallback, print a warning and use the fallback's name in the config and the run's name. With
    `train.ancestor`, the vocabulary has the ancestor's characters, too. Raises UserError if the text is missing or too
    short, or the ancestor has another shape.
    """
    ancestor = open_ancestor(config) if config.train.ancestor else None
    corpus = open_corpus(config.data)
    if corpus.fallback_reason:
        instead = f"on the corpus {corpus.name} INSTEAD OF {config.data.corpus}, so its results are not comparable"
        print(f"WARNING: {corpus.fallback_reason}.\nWARNING: this run trains {instead}.", file=sys.stderr)
        name = f"{name}-on-{Path(corpus.name).stem}"
        config = dataclasses.replace(config, data=dataclasses.replace(config.data, corpus=corpus.name, fallback=None))
    corpus.split(config.data.split, config.model.block_size)
    if ancestor:
        characters = (config.data.characters or "") + ancestor.vocabulary.characters
        is_larger = not set(characters) <= set(corpus.vocabulary.characters)
        data = dataclasses.replace(config.data, characters="".join(sorted(set(characters))) if is_larger else None)
        config, corpus = dataclasses.replace(config, data=data), open_corpus(data)
    return config, corpus, name


def open_text_of_run(data: DataConfig, advice: str) -> Corpus:
    """Open the text of a run, which has no fallback. Raises UserError with the advice if the text was moved."""
    try:
        return open_corpus(dataclasses.replace(data, fallback=None))
    except MissingTextError as error:
        raise UserError(f"{error}; if you moved the text, {advice}") from None


def open_ancestor(config: Config) -> Checkpoint:
    """Return the model of `train.ancestor`. Raises CheckpointError if it has another shape than the config's."""
    assert config.train.ancestor is not None
    path, ancestor = open_checkpoint(Path(config.train.ancestor))
    if found := forbidden_changes(ancestor.config, config, ("data.level",)):
        raise CheckpointError(
            f"{path} is another model than that of this config ({'; '.join(found)}); set these as in {path}"
        )
    return ancestor


def adopt(state: TrainingState, ancestor: Checkpoint) -> None:
    """Give the model of a new run the weights of its ancestor (fine-tuning); the optimisers start from scratch.

    New characters get the mean row, so that they change the model's other predictions little (Hewitt, 2021).
    """
    before, now = ancestor.vocabulary.characters, state.corpus.vocabulary.characters
    if missing := set(before) - set(now):
        raise CheckpointError(f"data.characters lacks {sorted(missing)!r:.80} of {state.config.train.ancestor}")
    weights, places = ancestor.weights, torch.tensor([now.index(character) for character in before])
    for name in BY_CHARACTER:
        rows = weights[name].mean(0, keepdim=True).repeat(len(now), 1)
        rows[places] = weights[name]
        weights[name] = rows
    if state.model.ngrams is not None:
        if places.tolist() != list(range(len(before))):  # the n-grams of other ids have other rows
            weights |= {name: torch.zeros_like(weights[name]) for name in ("ngrams.rows.weight", "ngrams.counts")}
        weights["ngrams.counts"] = (weights["ngrams.counts"] + state.model.ngrams.counts.cpu()).clamp(max=MOST)
    state.load_state_dict({"progress": state.progress, "tensors": {f"model.{k}": x for k, x in weights.items()}})
