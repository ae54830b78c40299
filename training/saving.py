"""Save the state of a run."""

import contextlib
from collections.abc import Iterator

from training.checkpoint import save_checkpoint
from training.clock import Clock
from training.command import explain
from training.distributed import LostProcessError, OtherProcessError, World, reaching_others
from training.run_folder import RunFolder
from training.runtime import Runtime, peak_memory_bytes
from training.schedule import kept_steps
from training.state import DivergedError, TrainingError, TrainingState


class Saver:
    """Saves the checkpoints of a run. All processes call it, and the main one writes."""

    def __init__(self, state: TrainingState, run: RunFolder, runtime: Runtime, clock: Clock):
        self.state, self.run, self.runtime, self.clock = state, run, runtime, clock
        settings = state.config.train
        self._steps_to_keep = set(kept_steps(settings.keep_checkpoints, settings.max_steps))

    def save(self, *, is_best: bool = False) -> None:
        """Save the latest checkpoint and, if it is the best, the best one."""
        progress, is_main = self.state.progress, self.runtime.world.is_main
        progress.elapsed_s = self.clock.elapsed_s
        progress.peak_memory_bytes = max(progress.peak_memory_bytes, peak_memory_bytes(self.runtime.device))
        if is_main:
            progress.log_sizes = self.run.sizes()
        checkpoint = self.state.snapshot()
        if checkpoint.part:
            self.run.part(*checkpoint.part).save(checkpoint, is_best=is_best)
        elif is_main:
            self.run.save(checkpoint, is_best=is_best)

    def keep(self) -> None:
        """Keep the weights of this step if `train.keep_checkpoints` asks for it."""
        step = self.state.progress.step
        if step in self._steps_to_keep or (self._steps_to_keep and self.state.is_finished()):
            weights = self.state.snapshot(weights_only=True)
            if self.runtime.world.is_main:
                save_checkpoint(weights, self.run.kept(step))


@contextlib.contextmanager
def explained(run: RunFolder, world: World) -> Iterator[None]:
    """Turn an error of the machine during a run into a TrainingError that says what to do.

    Of an error that all processes have, only the main one speaks.
    """
    try:
        with reaching_others():
            yield
    except (OSError, LostProcessError) as error:
        is_saved = run.has_checkpoints() or not run.path.exists()  # the folder may be on the main process's host only
        saved = f"resume with --resume {run.path}" if is_saved else "start again: nothing was saved yet"
        raise TrainingError(f"{explain(error)}; fix this, then {saved}") from error
    except DivergedError:
        if world.is_main:
            raise
        raise OtherProcessError from None
    except ValueError as error:  # settings are checked by now, so this is a bug and not a user's mistake
        raise RuntimeError(str(error)) from error
