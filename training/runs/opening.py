"""Open the folder of a run to train it, from step 0 or from its newest checkpoint."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cli.errors import UserError, explain
from data.corpus import Corpus
from training.config import Config
from training.config_file import build_config, read_settings, to_yaml, upgraded
from training.processes.ddp import OtherProcessError, reaching_others
from training.processes.launching import become_torchrun
from training.processes.one_process import OneProcess
from training.runs.ancestor import adopt, open_ancestor
from training.runs.checkpoint import Checkpoint
from training.runs.run_folder import RunFolder
from training.runs.saving import newest_checkpoint, restore
from training.runs.starting import open_text_of_run
from training.runtime import Runtime, prepare_machine, warn_if_slow
from training.state import DivergedError, TrainingError, TrainingState


@contextlib.contextmanager
def opened_run(
    folder: Path, processes: OneProcess, overrides: Sequence[str], *, timeout_s: float
) -> Iterator[tuple[RunFolder, TrainingState, list[str]]]:
    """Lock the folder of a run, and yield it, its state, and the settings that have changed since the last session.

    The main process reads the folder for the others, which may have no access to it. If `train.processes` asks for
    several, torchrun replaces this one process. overrides: of the run's settings. timeout_s: how long several
    processes wait for each other. Raises UserError if the run cannot be opened.

    Inside the context, an error of the machine becomes a TrainingError that says how to resume. If the run is new, its
    folder is removed after an error before anything is logged or saved.
    """
    run = RunFolder(folder, writes=processes.is_main)
    with contextlib.ExitStack() as stack:

        def read() -> dict[str, Any] | None:
            RunFolder.find(folder)
            stack.enter_context(run.lock())
            stack.enter_context(run.removed_if_unused())
            newest = newest_checkpoint(run)
            return vars(newest) if newest else None

        fields = processes.from_main(read)
        checkpoint = Checkpoint(**fields) if fields else None
        settings = processes.from_main(lambda: read_settings(run.config))

        def prepare() -> tuple[Config, Corpus, Runtime]:
            config = build_config(checkpoint.settings if checkpoint else upgraded(settings), overrides)
            corpus = open_text_of_run(config.data, "add data.corpus=NEW_PATH")
            return config, corpus, prepare_machine(config, processes)

        config, corpus, runtime = processes.together(prepare)
        if config.train.processes > processes.size == 1 and "WORLD_SIZE" not in os.environ:
            become_torchrun(config.train.processes, ["--resume", str(folder), *overrides, f"--timeout={timeout_s}"])
        reason = "the hosts have different settings or texts; give each the same command, config and text"
        processes.check_same(to_yaml(config) + corpus.digest, reason)
        warn_if_slow(runtime)
        state = TrainingState(config, corpus, runtime)
        starts_from_ancestor = checkpoint is None and config.train.ancestor is not None
        fields = processes.from_main(lambda: vars(open_ancestor(config)) if starts_from_ancestor else None)
        ancestor = Checkpoint(**fields) if fields else None

        def begin() -> list[str]:
            if ancestor:
                adopt(state, ancestor)
            changes = restore(state, checkpoint) if checkpoint else []
            if changes or not (state.is_finished() and run.is_finished()):  # or there is nothing to do
                run.begin_session(to_yaml(config), state.progress.step, state.progress.log_sizes)
            return changes

        changes = processes.together(begin)
        processes.remember_run(folder)
        with _explained(run, processes):
            yield run, state, changes


@contextlib.contextmanager
def _explained(run: RunFolder, processes: OneProcess) -> Iterator[None]:
    """Turn an error of the machine during a run into a TrainingError that says what to do.

    If all processes have the same error, only the main one reports it.
    """
    try:
        with reaching_others(processes.rank):
            yield
    except DivergedError:
        if processes.is_main:
            raise
        raise OtherProcessError from None
    except TrainingError:
        raise
    except (OSError, UserError) as error:
        is_saved = run.has_checkpoints() or not run.config.exists()  # it may be on the main process's host only
        saved = f"resume with --resume {run.path}" if is_saved else "start again: nothing was saved yet"
        raise TrainingError(f"{explain(error)}; fix this, then {saved}") from error
