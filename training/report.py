"""What a run tells: lines on the console, records in its folder, and how fast it goes."""

import contextlib
import math
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from training.console import Console
from training.evaluation import Evaluation
from training.run_folder import RunFolder
from training.runtime import Runtime, peak_memory_bytes, processor_name
from training.state import TrainingState
from training.tensorboard import open_tensorboard, write_record


class Report:
    """The story of a run, told while it happens.

    started_s: `time.perf_counter()` when the command started. tokens_per_step: characters predicted in a step.
    """

    def __init__(
        self, state: TrainingState, run: RunFolder, runtime: Runtime, *, started_s: float, tokens_per_step: int
    ):
        self.state, self.run, self.runtime, self.tokens_per_step = state, run, runtime, tokens_per_step
        self._origin_s = started_s - state.progress.elapsed_s
        self._console = Console(state.progress.step, state.config.train.max_steps)
        self._board = None
        if state.config.train.tensorboard:
            self._board = open_tensorboard(run.path, from_step=state.progress.step)
        self._first_step = self._line_step = state.progress.step
        self._first_s = self._line_s = time.perf_counter()
        self._paused_s = 0.0  # since the last training line

    @property
    def elapsed_s(self) -> float:
        """Seconds since the command started, those of the run's earlier sittings added."""
        return time.perf_counter() - self._origin_s

    @property
    def peak_memory_bytes(self) -> int:
        """The most memory that any of the run's sittings has held so far."""
        return max(self.state.progress.peak_memory_bytes, peak_memory_bytes(self.runtime.device))

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Time within is not counted as training."""
        began_s = time.perf_counter()
        yield
        self._paused_s += time.perf_counter() - began_s

    def introduce(self, *, n_train: int, n_val: int, changes: Sequence[str] = ()) -> None:
        config, corpus, progress = self.state.config, self.state.corpus, self.state.progress
        self._console.say(
            f"Corpus {corpus.name}: {len(corpus.ids):,} characters, {len(corpus.vocabulary):,} different ones; "
            f"{n_train:,} to train on, {n_val:,} to validate on"
        )
        self._console.say(
            f"Model: {self.state.model.n_parameters():,} parameters, {config.model.n_layer} layers of "
            f"{_spoken(config.model.n_head)} heads, width {config.model.n_embd}, context {config.model.block_size}"
        )
        going_on = f", going on from step {progress.step:,}" if progress.step else ""
        self._console.say(f"Running on {self.runtime} into {self.run.path}{going_on}")
        if changes:
            self._log(changes=list(changes))
            self._console.say(f"Settings changed here: {'; '.join(changes)}")

    def step(self) -> None:
        self._console.advance()

    def training(self) -> None:
        """A training line about the steps since the last one."""
        config, step = self.state.config, self.state.progress.step
        loss = self.state.take_mean_loss()
        now_s = time.perf_counter()
        tokens_per_s = (step - self._line_step) * self.tokens_per_step / (now_s - self._line_s - self._paused_s)
        left_s = (config.train.max_steps - step) * (now_s - self._first_s) / (step - self._first_step)
        lr = config.optim.lr * config.optim.lr_factor(step - 1, config.train.max_steps)
        self._log(train_loss=loss, lr=lr, context=config.context(step - 1), tokens_per_s=round(tokens_per_s))
        self._console.training(step, loss=loss, lr=lr, tokens_per_s=tokens_per_s, left_s=left_s)
        self._line_step, self._line_s, self._paused_s = step, now_s, 0.0

    def evaluation(self, result: Evaluation, sample: str, *, is_best: bool) -> None:
        step, block_size = self.state.progress.step, self.state.config.model.block_size
        self._log(
            val_loss=result.loss,
            val_bits_per_char=result.bits_per_character,
            val_characters=result.n_characters,
            val_context=block_size,
        )
        if sample:
            self.run.add_sample(f"step {step:,}, validation loss {result.loss:.4f}", sample)
        self._console.say(
            f"step {step:,}  validation loss {result.loss:.4f}{' (best)' if is_best else ''}  "
            f"{result.bits_per_character:.3f} bits per character  context {block_size}  {self.elapsed_s:.0f} s"
        )

    def stopped(self, name: str) -> None:
        self._console.say(f"Stopped by {name} after step {self.state.progress.step:,}. To go on:")
        self._console.say(f"  {_command('train.py', '--resume', self.run.path)}")

    def finished(self, last_sample: str) -> None:
        """The last lines of a run: its best loss, its time, where things are, and how to write with it."""
        progress, config = self.state.progress, self.state.config
        self._log(
            finished=True,
            best_val_loss=progress.best_loss if math.isfinite(progress.best_loss) else None,
            n_parameters=self.state.model.n_parameters(),
            peak_memory_bytes=self.peak_memory_bytes,
            machine=f"{self.runtime}, {processor_name()}, PyTorch {torch.__version__}",
        )
        early = progress.step < config.train.max_steps
        self._console.close()
        if progress.step == self._first_step:
            self._console.say(f"Step {progress.step:,} is done already; raise train.max_steps to go on")
        if last_sample:
            self._console.say(f"\n{last_sample.strip()}\n")
        self._console.say(
            f"Finished on the corpus {self.state.corpus.name} after {progress.step:,} steps, {self.elapsed_s:.0f} s"
            + (f": no better loss in {config.train.patience} evaluations" if early else "")
        )
        if math.isfinite(progress.best_loss):
            self._console.say(
                f"Best validation loss {progress.best_loss:.4f} nats ({progress.best_loss / math.log(2):.3f} bits) per "
                f"character, context {config.model.block_size}, at step {progress.best_step:,}"
            )
        self._console.say(f"Settings, metrics, samples and checkpoints are in {self.run.path}")
        self._console.say(f"Write with it:\n  {_command('sample.py', '--checkpoint', self.run.path)}")

    def close(self) -> None:
        self._console.close()
        if self._board:
            self._board.close()

    def _log(self, **values) -> None:
        progress = self.state.progress
        record = {"step": progress.step, "elapsed_s": round(self.elapsed_s, 3), "corpus": self.state.corpus.name}
        record |= values
        self.run.log(record)
        if self._board:
            write_record(self._board, record)


def _spoken(n_head: int | tuple[int, ...]) -> str:
    return str(n_head) if isinstance(n_head, int) else ", ".join(map(str, n_head))


def _command(script: str, *arguments: object) -> str:
    """A command line that runs a script beside the one that is running."""
    return shlex.join(["python", str(Path(sys.argv[0]).with_name(script)), *map(str, arguments)])
