"""Save the state of a run in its folder, and restore it."""

import dataclasses
import sys
from collections.abc import Mapping

from torch import Tensor

from model.config import ModelConfig
from training.config import Config
from training.config_file import load_run_config, to_dict
from training.optim.schedule import kept_steps
from training.runs.checkpoint import Checkpoint, CheckpointError, load_weights
from training.runs.metrics import read_newest_record
from training.runs.run_folder import RunFolder
from training.runtime import peak_memory_bytes
from training.state import Progress, TrainingState

# Settings of the model that may change when a run resumes: a trained model computes the same with any of them.
FREE_TO_CHANGE = ("dropout", "attention")


def save(run: RunFolder, state: TrainingState, *, elapsed_s: float, is_best: bool = False) -> None:
    """Save the state as the latest checkpoint and, if it is the best, as the best one.

    elapsed_s: the time of the run, over all sessions. Raises TrainingError if a weight is not finite.
    """
    progress = state.progress
    progress.elapsed_s = elapsed_s
    progress.peak_memory_bytes = max(progress.peak_memory_bytes, peak_memory_bytes(state.runtime.device))
    progress.log_sizes = run.log_sizes()
    run.save(capture(state), is_best=is_best)


def keep(run: RunFolder, state: TrainingState) -> None:
    """Keep the weights of this step if `train.keep_checkpoints` asks for it."""
    steps = kept_steps(state.config.train.keep_checkpoints, state.config.train.max_steps)
    if state.progress.step in steps or (steps and state.is_finished()):
        run.keep(capture(state, weights_only=True))


def capture(state: TrainingState, *, weights_only: bool = False) -> Checkpoint:
    """Return the state, or the weights to sample from, as a checkpoint.

    Raises TrainingError if a weight is not finite.
    """
    state.check_finite()
    state.progress.loss_sum, state.progress.loss_count = state.loss_sum.item(), int(state.loss_count)
    corpus, has_average = state.corpus, state.average.model is not state.model
    return Checkpoint(
        settings=to_dict(state.config),
        characters=corpus.vocabulary.characters,
        corpus={
            "name": corpus.name,
            "digest": corpus.digest,
            "n_characters": len(corpus.ids),
            "n_train": corpus.n_train,
        },
        model=state.average.model.state_dict(),
        trained=state.model.state_dict() if has_average and not weights_only else None,
        optimizers=[{} if weights_only else optimizer.state_dict()["state"] for optimizer in state.optimizers],
        progress=dataclasses.asdict(state.progress),
    )


def restore(state: TrainingState, checkpoint: Checkpoint) -> list[str]:
    """Load a checkpoint and return the settings that have changed since, as text such as "a.b was 1 and is 2".

    Raises CheckpointError if the checkpoint is of another model, optimiser or text, or is past train.max_steps.
    """
    if differences := _differences(state, checkpoint):
        raise CheckpointError(
            f"this run cannot be resumed with another model, optimiser or text ({'; '.join(differences)}); "
            "start a new one with --config"
        )
    before, now = checkpoint.config(), state.config
    load_models(state, averaged=checkpoint.model, trained=checkpoint.trained or checkpoint.model)
    for optimizer, saved in zip(state.optimizers, checkpoint.optimizers, strict=True):
        # Learning rates and other settings come from the config, which may have changed.
        optimizer.load_state_dict(optimizer.state_dict() | {"state": saved})
    state.progress = _progress(checkpoint)
    if checkpoint.trained is None or state.average.model is state.model:
        state.progress.averaged_steps = 0  # an average starts with the next step, or not at all
    if now.train.max_steps < state.progress.step:
        raise CheckpointError(
            f"train.max_steps={now.train.max_steps} is below the run's current step {state.progress.step}; "
            "raise it to resume"
        )
    state.loss_sum.fill_(state.progress.loss_sum)
    state.loss_count.fill_(state.progress.loss_count)
    return [
        f"{section.name}.{setting} was {then} and is {value}"
        for section in dataclasses.fields(Config)
        for setting, value in dataclasses.asdict(getattr(now, section.name)).items()
        if (then := getattr(getattr(before, section.name), setting)) != value
    ]


def load_models(state: TrainingState, *, averaged: Mapping[str, Tensor], trained: Mapping[str, Tensor]) -> None:
    """Load weights into the state's models. Raises CheckpointError if they do not fit."""
    for model, weights in ((state.average.model, averaged), (state.model, trained)):
        load_weights(model, weights)


def newest_checkpoint(run: RunFolder) -> Checkpoint | None:
    """Return the checkpoint to resume from, or None if the run ended before its first one and starts again.

    Raises CheckpointError if the run has saved a checkpoint that is now damaged or missing.
    """
    if not run.has_saved():
        settings = load_run_config(run.config).train
        first_save = min(settings.checkpoint_every_steps, settings.eval_every_steps, settings.max_steps)
        record = read_newest_record(run.metrics)
        if record.get("step", 0) <= first_save and not record.get("finished"):
            return None
    checkpoint, warnings = run.load_newest()
    for warning in warnings:
        print(f"train.py: warning: {warning}; resuming from step {checkpoint.step:,}", file=sys.stderr)
    return checkpoint


def _progress(checkpoint: Checkpoint) -> Progress:
    """Return a checkpoint's progress. Raises CheckpointError if a value has a wrong type."""
    settings, expected = checkpoint.config().train, vars(Progress())
    values = {"windows": checkpoint.step * settings.accumulate * settings.batch_size, **checkpoint.progress}
    for name, value in values.items():
        kind = type(expected.get(name))
        if not isinstance(value, (int, float) if kind is float else kind):
            raise CheckpointError(f"the checkpoint's progress cannot have {name}={value!r:.40}; use another checkpoint")
    return Progress(**values)


def _differences(state: TrainingState, checkpoint: Checkpoint) -> list[str]:
    before, now, corpus = checkpoint.config(), state.config, state.corpus
    pairs = {}
    for name in ("split", "level"):
        pairs[f"data.{name}"] = (getattr(before.data, name), getattr(now.data, name))
    # The best loss so far would not be comparable.
    pairs["train.eval_characters"] = (before.train.eval_characters, now.train.eval_characters)
    pairs["train.ancestor"] = (before.train.ancestor, now.train.ancestor)
    pairs["optim.name"] = (before.optim.name, now.optim.name)
    pairs["the text's SHA-256"] = (f"{checkpoint.corpus['digest'][:12]}...", f"{corpus.digest[:12]}...")
    n_train = checkpoint.corpus.get("n_train")  # of a text with a separate validation text
    pairs["the length of the training text"] = (n_train, corpus.n_train)
    known, saved = set(corpus.vocabulary.characters), set(checkpoint.characters)
    pairs["the vocabulary"] = (f"with {_shown(saved - known)}", f"with {_shown(known - saved)}")
    others = [f"{name} was {then} and is {is_now}" for name, (then, is_now) in pairs.items() if then != is_now]
    return model_differences(before.model, now.model) + others


def model_differences(before: ModelConfig, now: ModelConfig) -> list[str]:
    """Return the settings in which two models differ, but for those that a trained model may change, as text."""
    return [
        f"model.{name} was {then} and is {is_now}"
        for name in (field.name for field in dataclasses.fields(ModelConfig))
        if (then := getattr(before, name)) != (is_now := getattr(now, name)) and name not in FREE_TO_CHANGE
    ]


def _shown(characters: set[str]) -> str:
    return repr("".join(sorted(characters)[:20])) if characters else "nothing else"
