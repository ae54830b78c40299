"""What may differ between a run and the checkpoint that it continues or, as its ancestor, starts from (fine-tuning)."""

import dataclasses
from pathlib import Path

import torch

from cli.rules import Mark
from data.corpus import Corpus
from model.ngrams import MOST
from training.config import Config, settings_with
from training.config_file import shown
from training.runs.checkpoint import Checkpoint, CheckpointError, load_checkpoint
from training.runs.find_checkpoint import find_checkpoint
from training.state import TrainingState


def changed_settings(before: Config, now: Config) -> dict[str, str]:
    """Return the settings that have changed, each as text such as "train.seed was 1 and is 2", by section.name."""
    return {
        (key := f"{section.name}.{setting}"): f"{key} was {shown(then)} and is {shown(value)}"
        for section in dataclasses.fields(Config)
        for setting, value in dataclasses.asdict(getattr(now, section.name)).items()
        if (then := getattr(getattr(before, section.name), setting)) != value
    }


def other_models(before: Config, now: Config) -> list[str]:
    """Return the changes that make another model, which the weights do not fit, as text."""
    retunable = settings_with(Mark.RETUNABLE)
    found = changed_settings(before, now).items()
    return [text for key, text in found if key.startswith("model.") and key not in retunable]


def check_resumable(checkpoint: Checkpoint, now: Config, corpus: Corpus) -> None:
    """Raise CheckpointError if a run cannot continue from a checkpoint with this config and text."""
    is_same = {
        "text": checkpoint.corpus["digest"] == corpus.digest,
        "training part of the text": checkpoint.corpus["n_train"] == corpus.n_train,
        "vocabulary": checkpoint.vocabulary.characters == corpus.vocabulary.characters,
    }
    others = [f"the {name} has changed" for name, same in is_same.items() if not same]
    fixed, changed = settings_with(Mark.FIXED), changed_settings(checkpoint.config, now)
    forbidden = [text for key, text in changed.items() if key in fixed]
    if found := other_models(checkpoint.config, now) + forbidden + others:
        raise CheckpointError(
            f"this run cannot be resumed with another model, optimiser or text ({'; '.join(found)}); "
            "start a new one with --config"
        )
    if now.train.max_steps < checkpoint.step:
        raise CheckpointError(
            f"train.max_steps={now.train.max_steps} is below the run's current step {checkpoint.step}; "
            "raise it to resume"
        )
    was_over, limits = (checkpoint.progress.limits_reached(config.train) for config in (checkpoint.config, now))
    in_vain = sorted(changed.keys() - settings_with(Mark.WITHOUT_EFFECT) - settings_with(Mark.RESOLVED))
    if was_over and limits and in_vain:
        raise CheckpointError(
            f"the run ended at step {checkpoint.step:,}, so a change of {in_vain[0]} has no effect; "
            f"raise {' and '.join(limits)} to train longer"
        )


def with_ancestor(config: Config) -> tuple[Config, Checkpoint]:
    """Return the config of a new run with the characters of its ancestor, and the ancestor.

    Raises CheckpointError if the ancestor has another shape.
    """
    assert config.train.ancestor, "a run without an ancestor"
    path = find_checkpoint(Path(config.train.ancestor))
    ancestor = load_checkpoint(path)
    if found := other_models(ancestor.config, config):
        raise CheckpointError(
            f"{path} is another model than that of this config ({'; '.join(found)}); set these as in {path}"
        )
    characters = {*(config.data.characters or ""), *ancestor.vocabulary.characters}
    data = dataclasses.replace(config.data, characters="".join(sorted(characters)))
    return dataclasses.replace(config, data=data), ancestor


def adopt(state: TrainingState, ancestor: Checkpoint) -> None:
    """Give the model of a new run the weights of its ancestor (fine-tuning); the optimisers start from scratch.

    New characters get the mean row, so that they change the model's other predictions little (Hewitt, 2021), and the
    next symbols of n-grams. The ancestor's counts are scaled: its rows keep their weights c / (c + p) with the new p.
    """
    before, now = ancestor.vocabulary.characters, state.corpus.vocabulary.characters
    is_known = torch.tensor([character in before for character in now])  # both are sorted
    weights = ancestor.weights
    for name, x in state.model.state_dict().items():
        known = weights[name]
        if x.shape != known.shape:  # it has a row for each character
            new = known.mean(0) if known.is_floating_point() else torch.arange(len(before), len(now)) + 1
            weights[name] = torch.empty(x.shape, dtype=known.dtype)
            weights[name][is_known], weights[name][~is_known] = known, new
    state.load(state.progress, {f"model.{name}": x for name, x in weights.items()})
    if ngrams := state.model.ngrams:
        of_ancestor = ngrams.counts * (ngrams.prior / weights["memories.ngrams.prior"])
        ngrams.count(state.split.train)
        ngrams.counts.add_(of_ancestor).clamp_(max=MOST)
    state.origin["ancestor"] = ancestor.weights_digest()[:16]
