"""Open the folder of a run to train it, from step 0 or from its newest checkpoint."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from cli.errors import UserError, explain
from training.config_file import build_config, read_settings, to_yaml, upgraded
from training.processes import OneProcess, become_torchrun, naming_lost_processes
from training.runs.ancestor import adopt, open_ancestor
from training.runs.run_folder import RunFolder
from training.runs.saving import newest_checkpoint, restore
from training.runs.starting import open_text_of_run
from training.runtime import prepare_machine, warn_if_slow
from training.state import TrainingError, TrainingState


@contextlib.contextmanager
def opened_run(
    folder: Path, processes: OneProcess, overrides: Sequence[str], *, timeout_s: float
) -> Iterator[tuple[RunFolder, TrainingState, list[str]]]:
    """Lock the folder of a run, and yield it, its state, and the settings that have changed since the last session.

    Every process reads the folder; process 0 locks it and writes. If `train.processes` asks for several, torchrun
    replaces this one process. overrides: of the run's settings. timeout_s: how long several processes wait for each
    other. Raises UserError if the run cannot be opened.

    Inside the context, an error of the machine becomes a TrainingError that says how to resume. If the run is new, its
    folder is removed after an error before anything is logged or saved.
    """
    run = RunFolder.find(folder)
    run.writes = processes.is_main
    with contextlib.ExitStack() as stack:
        if run.writes:
            stack.enter_context(run.lock())
            stack.enter_context(run.removed_if_unused())
        checkpoint = newest_checkpoint(run)
        config = build_config(checkpoint.settings if checkpoint else upgraded(read_settings(run.config)), overrides)
        corpus = open_text_of_run(config.data, "add data.corpus=NEW_PATH")
        runtime = prepare_machine(config, processes)
        if config.train.processes > processes.size == 1 and "WORLD_SIZE" not in os.environ:
            become_torchrun(config.train.processes, ["--resume", str(folder), *overrides, f"--timeout={timeout_s}"])
        warn_if_slow(runtime)
        state = TrainingState(config, corpus, runtime)
        if checkpoint is None and config.train.ancestor is not None:
            adopt(state, open_ancestor(config))
        changes = restore(state, checkpoint) if checkpoint else []
        if changes or not (state.is_finished() and run.is_finished()):  # or there is nothing to do
            run.begin_session(to_yaml(config), state.progress.step, state.progress.log_sizes)
        with _explained(run, processes.rank):
            yield run, state, changes


@contextlib.contextmanager
def _explained(run: RunFolder, rank: int) -> Iterator[None]:
    """Turn an error of the machine during a run into a TrainingError that says what to do."""
    try:
        with naming_lost_processes(rank):
            yield
    except TrainingError:
        raise
    except (OSError, UserError) as error:
        is_saved = run.has_checkpoints()
        saved = f"resume with --resume {run.path}" if is_saved else "start again: nothing was saved yet"
        raise TrainingError(f"{explain(error)}; fix this, then {saved}") from error
