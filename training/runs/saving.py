"""Save the state of a run in its folder."""

from training.optim.schedule import kept_steps
from training.runs.checkpoint import CORPUS, Checkpoint, check_weights
from training.runs.run_folder import RunFolder
from training.runtime import peak_memory_bytes
from training.state import TrainingState


def save(run: RunFolder, state: TrainingState, *, elapsed_s: float, is_best: bool = False) -> None:
    """Save the state as the latest checkpoint and, if it is the best, as the best one.

    elapsed_s: the time of the run, over all sessions. Raises TrainingError if a weight is not finite.
    """
    progress = state.progress
    progress.elapsed_s = elapsed_s
    progress.peak_memory_bytes = max(progress.peak_memory_bytes, peak_memory_bytes(state.runtime.device))
    progress.log_sizes = run.log_sizes()
    run.save(checkpoint_of(state), is_best=is_best)


def keep(run: RunFolder, state: TrainingState) -> None:
    """Keep the weights of this step if `train.keep_checkpoints` asks for it."""
    steps = kept_steps(state.config.train.keep_checkpoints, state.config.train.max_steps)
    is_due = not state.progress.evaluation_due and (state.progress.step in steps or (steps and state.is_finished()))
    if is_due and not run.kept(state.progress.step).exists():  # it does if the run is resumed at this step
        run.keep(checkpoint_of(state).without_training_state())


def checkpoint_of(state: TrainingState) -> Checkpoint:
    """Return the state as a checkpoint. Raises TrainingError if a weight is not finite."""
    state.check_finite()
    corpus = state.corpus
    described = {name: getattr(corpus, name) for name in CORPUS}
    checkpoint = Checkpoint(state.config, corpus.vocabulary, described, state.origin, **state.state_dict())
    if not checkpoint.step:
        check_weights(checkpoint)  # a run that has begun can be resumed
    return checkpoint
