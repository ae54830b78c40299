"""Save the state of a run."""

import contextlib
import dataclasses
import secrets
from collections.abc import Iterator
from pathlib import Path

from cli.errors import UserError, explain
from training.log.clock import Clock
from training.optim.schedule import kept_steps
from training.processes.distributed import LostProcessError, OtherProcessError, World, reaching_others
from training.runs.checkpoint import Checkpoint, Part, save_checkpoint
from training.runs.run_folder import RunFolder
from training.runtime import Runtime, peak_memory_bytes
from training.state import DivergedError, TrainingError, TrainingState


class Saver:
    """Saves the checkpoints of a run. All processes call it, and the main one writes.

    With `train.sharded_checkpoints` each process writes its part.
    """

    def __init__(self, state: TrainingState, run: RunFolder, runtime: Runtime, clock: Clock):
        self.state, self.run, self.runtime, self.clock = state, run, runtime, clock
        settings = state.config.train
        self._steps_to_keep = set(kept_steps(settings.keep_checkpoints, settings.max_steps))
        self._saves: dict[Path, str] = {}  # in the main process; see `RunFolder.saves`, which reads the files
        if runtime.world.agree(run.parts.exists()):
            self._saves = run.saves() if runtime.world.is_main else {}
            self._remove_old_parts()

    def save(self, *, is_best: bool = False) -> None:
        """Save the latest checkpoint and, if it is the best, the best one."""
        progress, is_main = self.state.progress, self.runtime.world.is_main
        progress.elapsed_s = self.clock.elapsed_s
        progress.peak_memory_bytes = max(progress.peak_memory_bytes, peak_memory_bytes(self.runtime.device))
        if is_main:
            progress.log_sizes = self.run.sizes()
        checkpoint = self.state.snapshot()
        if self.state.saves_parts:
            self._save_parts(checkpoint, is_best=is_best)
        elif is_main:
            self.run.save(checkpoint, is_best=is_best)

    def _save_parts(self, checkpoint: Checkpoint, *, is_best: bool) -> None:
        """Save the parts of all processes and then, in the main one, the checkpoint that refers to them."""
        world = self.runtime.world
        save = world.share(f"step-{checkpoint.step}-{secrets.token_hex(4)}".encode()).decode()
        part = Part(save, world.rank, world.size)
        save_checkpoint(dataclasses.replace(checkpoint, part=part), self.run.part(part))
        world.agree(0)  # all parts are on disk
        if world.is_main:
            part = Part(save, None, world.size)
            without_tensors = dataclasses.replace(checkpoint, model={}, trained=None, optimizers=[], part=part)
            self.run.save(without_tensors, is_best=is_best)
            if before := self._saves.get(self.run.latest):
                self._saves[self.run.previous] = before
            self._saves |= dict.fromkeys([self.run.latest] + [self.run.best] * is_best, save)
        self._remove_old_parts()

    def _remove_old_parts(self) -> None:
        needed = self.runtime.world.share(" ".join(self._saves.values()).encode()).decode().split()
        if self.runtime.world.local_rank == 0:
            self.run.remove_parts(but_of=needed)

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
    except (OSError, UserError, LostProcessError) as error:
        is_saved = run.has_checkpoints() or not run.config.exists()  # it may be on the main process's host only
        saved = f"resume with --resume {run.path}" if is_saved else "start again: nothing was saved yet"
        raise TrainingError(f"{explain(error)}; fix this, then {saved}") from error
    except DivergedError:
        if world.is_main:
            raise
        raise OtherProcessError from None
