"""What differs between the config and text of a run and those that its checkpoint was trained with."""

import dataclasses

from data.corpus import Corpus
from model.config import ModelConfig
from training.config import Config
from training.runs.checkpoint import Checkpoint, CheckpointError

# Settings of the model that may change when a run resumes: a trained model computes the same with any of them.
FREE_TO_CHANGE = ("dropout", "attention")


def changed_settings(before: Config, now: Config) -> list[str]:
    """Return the settings that have changed, each as text such as "train.seed was 1 and is 2"."""
    return [
        f"{section.name}.{setting} was {then} and is {value}"
        for section in dataclasses.fields(Config)
        for setting, value in dataclasses.asdict(getattr(now, section.name)).items()
        if (then := getattr(getattr(before, section.name), setting)) != value
    ]


def changes_of_model(before: ModelConfig, now: ModelConfig) -> list[str]:
    """Return the settings in which two models differ, except those that a trained model may change, as text."""
    return [
        f"model.{name} was {then} and is {is_now}"
        for name in (field.name for field in dataclasses.fields(ModelConfig))
        if (then := getattr(before, name)) != (is_now := getattr(now, name)) and name not in FREE_TO_CHANGE
    ]


def check_resumable(checkpoint: Checkpoint, now: Config, corpus: Corpus) -> None:
    """Raise CheckpointError if a run cannot continue from a checkpoint with this config and text."""
    before, saved, known = checkpoint.config, set(checkpoint.vocabulary.characters), set(corpus.vocabulary.characters)
    pairs = {
        "data.split": (before.data.split, now.data.split),
        "data.level": (before.data.level, now.data.level),
        # The best loss so far would not be comparable.
        "train.eval_characters": (before.train.eval_characters, now.train.eval_characters),
        "train.ancestor": (before.train.ancestor, now.train.ancestor),
        "optim.name": (before.optim.name, now.optim.name),
        "the text's SHA-256": (f"{checkpoint.corpus['digest'][:12]}...", f"{corpus.digest[:12]}..."),
        # of a text with a separate validation text
        "the length of the training text": (checkpoint.corpus.get("n_train"), corpus.n_train),
        "the vocabulary": (f"with {_shown(saved - known)}", f"with {_shown(known - saved)}"),
    }
    others = [f"{name} was {then} and is {is_now}" for name, (then, is_now) in pairs.items() if then != is_now]
    if found := changes_of_model(before.model, now.model) + others:
        raise CheckpointError(
            f"this run cannot be resumed with another model, optimiser or text ({'; '.join(found)}); "
            "start a new one with --config"
        )
    if now.train.max_steps < checkpoint.step:
        raise CheckpointError(
            f"train.max_steps={now.train.max_steps} is below the run's current step {checkpoint.step}; "
            "raise it to resume"
        )


def _shown(characters: set[str]) -> str:
    return repr("".join(sorted(characters)[:20])) if characters else "nothing else"
