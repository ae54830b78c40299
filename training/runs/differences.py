"""What differs between the config and text of a run and those that its checkpoint was trained with."""

import dataclasses

from cli.marks import Mark
from data.corpus import Corpus
from training.config import Config, settings_with
from training.runs.checkpoint import Checkpoint, CheckpointError


def changed_settings(before: Config, now: Config) -> dict[str, str]:
    """Return the settings that have changed, each as text such as "train.seed was 1 and is 2", by section.name."""
    return {
        (key := f"{section.name}.{setting}"): f"{key} was {then} and is {value}"
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
    saved, known = set(checkpoint.vocabulary.characters), set(corpus.vocabulary.characters)
    pairs = {
        "the text's SHA-256": (f"{checkpoint.corpus['digest'][:12]}...", f"{corpus.digest[:12]}..."),
        # of a text with a separate validation text
        "the length of the training text": (checkpoint.corpus.get("n_train"), corpus.n_train),
        "the vocabulary": (f"with {_shown(saved - known)}", f"with {_shown(known - saved)}"),
    }
    others = [f"{name} was {then} and is {is_now}" for name, (then, is_now) in pairs.items() if then != is_now]
    fixed = settings_with(Mark.FIXED)
    changed = [text for key, text in changed_settings(checkpoint.config, now).items() if key in fixed]
    if found := other_models(checkpoint.config, now) + changed + others:
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
