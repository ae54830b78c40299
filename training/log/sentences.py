"""What a run says on the console, as functions of its state."""

import math
from collections.abc import Sequence
from pathlib import Path

from cli.hints import to_paste
from training.evaluation import Evaluation
from training.state import ADVICE, TrainingState

MANY_PASSES, GOOD_PASSES = 10, 5  # through the training text, without dropout
RISEN = 3  # evaluations without a better loss


def introduction(state: TrainingState, folder: Path, changes: Sequence[str]) -> list[str]:
    """Return the lines on the text, the model, the length, the device and the folder of a run.

    changes: settings that differ from those of earlier sessions.
    """
    config, corpus, step = state.config, state.corpus, state.progress.step
    train_ids, val_ids, test_ids = state.split
    n_test, n_layer, max_steps = len(test_ids) - 1, config.model.n_layer, config.train.max_steps
    n_head = str(config.model.n_head).strip("(),")  # one number, or one per layer
    lines = [
        f"Corpus {corpus.name}: {corpus.n_files:,} file{'s' * (corpus.n_files != 1)}, {len(corpus.ids):,} "
        f"characters, a vocabulary of {len(corpus.vocabulary):,}; "
        f"{len(train_ids):,} for training, {len(val_ids) - 1:,} for validation"
        + (f", {n_test:,} for the test" if n_test else ""),
        f"Model: {state.model.n_parameters():,} parameters, {n_layer} layer{'s' * (n_layer != 1)} of {n_head} "
        f"head{'s' * (n_head != '1')}, width {config.model.n_embd}, context length {config.model.block_size}",
        f"{max_steps:,} steps read the training text {state.n_passes:.1f} times",
    ]
    if state.n_passes > MANY_PASSES and not config.model.dropout:
        fewer = max(1, round(GOOD_PASSES / state.n_passes * max_steps))
        lines.append(
            f"Warning: so often, it learns the text by heart. Read it about {GOOD_PASSES} times, with "
            f"train.max_steps={fewer}; or set model.dropout=0.2, and train.patience=3 to stop when the loss rises"
        )
    if config.train.ancestor:
        lines.append(f"Started from the weights of {config.train.ancestor}")
    resumed = f", resuming from step {step:,}" if step else ""
    lines.append(f"Running on {state.runtime} into {folder}{resumed}")
    if changes:
        lines.append(f"Changed settings: {'; '.join(changes)}")
    return lines


def describe_evaluation(result: Evaluation, step: int, elapsed_s: float, *, is_best: bool) -> str:
    return (
        f"step {step:,}  validation loss {result.loss:.4f}{' best' if is_best else ''}  "
        f"{result.bits_per_character:.3f} bits per character  {result.extent}  {elapsed_s:.0f} s"
    )


def conclusion(
    state: TrainingState, folder: Path, elapsed_s: float, last_loss: float, *, did_nothing: bool
) -> list[str]:
    """Return the lines at the end of a run: its length and time, its best loss, doubts about it, and its folder.

    last_loss: of the last evaluation. did_nothing: the run had no step left to take.
    """
    progress, settings = state.progress, state.config.train
    limits = progress.limits_reached(settings)
    if did_nothing:
        longer = f"raise {' and '.join(limits)} to train longer"
        lines = [f"The run is already at step {progress.step:,}; {longer}"]
    else:
        reason = f": no better loss in {settings.patience} evaluations" if "train.patience" in limits else ""
        length = f"{progress.step:,} steps, {elapsed_s:.0f} s{reason}"
        lines = [f"Finished on the corpus {state.corpus.name} after {length}"]
    return [
        *lines,
        *describe_best_loss(state, last_loss),
        f"Settings, metrics, samples and checkpoints are in {folder}",
        "To sample text:",
        f"  {to_paste('sample.py', '--checkpoint', folder)}",
    ]


def describe_best_loss(state: TrainingState, last_loss: float) -> list[str]:
    """Return the best validation loss, and what a person should do if later ones are worse than it or than guessing."""
    progress, lines = state.progress, []
    if math.isfinite(progress.best_loss):
        lines.append(
            f"Best validation loss {progress.best_loss:.4f} nats ({progress.best_loss / math.log(2):.3f} bits) per "
            f"character, context {state.config.model.block_size}, at step {progress.best_step:,}"
        )
    if progress.evaluations_since_best >= RISEN:
        lines.append(
            f"The validation loss has not been lower since step {progress.best_step:,}. If the training loss still "
            f"falls, the model learns its text by heart: train for about {progress.best_step:,} steps, raise "
            "model.dropout, or give it more text"
        )
    guessing = math.log(len(state.corpus.vocabulary))
    if guessing < last_loss < math.inf:
        lines.append(f"The last loss, {last_loss:.4f}, is worse than that of guessing, {guessing:.4f}: {ADVICE}")
    return lines
