"""The log of a run: lines on the console, records in metrics.jsonl, samples, and TensorBoard events."""

import math
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from training.evaluation import Evaluation
from training.log.clock import Clock
from training.log.console import Console
from training.log.tensorboard import open_tensorboard, write_record
from training.optim.schedule import context_length, lr_factor
from training.runs.metrics import append_record
from training.runs.run_folder import RunFolder
from training.runtime import Runtime, processor_name
from training.state import TrainingState


class RunLog:
    """The log of a run, which reads the training state and never changes it.

    tokens_per_step: characters predicted in a step. Only the main process prints and writes.
    """

    def __init__(self, state: TrainingState, run: RunFolder, runtime: Runtime, clock: Clock, *, tokens_per_step: int):
        self.state, self.run, self.runtime, self.clock = state, run, runtime, clock
        self.tokens_per_step, self._unit = tokens_per_step, state.corpus.vocabulary.unit
        self._first_step = self._line_step = state.progress.step
        self._has_evaluated = False
        self._is_main = runtime.world.is_main
        self._console = Console(self._first_step, state.config.train.max_steps, silent=not self._is_main)
        wants_board = state.config.train.tensorboard and self._is_main
        self._board = open_tensorboard(run.path, from_step=self._first_step) if wants_board else None

    def introduce(self, *, n_train: int, n_val: int, n_test: int, changes: Sequence[str] = ()) -> None:
        """Print the corpus, model, device and folder. changes: settings that differ from those of earlier sessions."""
        config, corpus, progress = self.state.config, self.state.corpus, self.state.progress
        self._console.say(
            f"Corpus {corpus.name}: {len(corpus.ids):,} {self._unit}s, {len(corpus.vocabulary):,} distinct; "
            f"{n_train:,} for training, {n_val:,} for validation" + (f", {n_test:,} for the test" if n_test else "")
        )
        n_head = str(config.model.n_head).strip("(),")  # one number, or one per layer
        self._console.say(
            f"Model: {self.state.model.n_parameters():,} parameters, {config.model.n_layer} layers of "
            f"{n_head} heads, width {config.model.n_embd}, context length {config.model.block_size}"
        )
        resumed = f", resuming from step {progress.step:,}" if progress.step else ""
        self._console.say(f"Running on {self.runtime} into {self.run.path}{resumed}")
        if changes:
            self._record(changes=list(changes))
            self._console.say(f"Changed settings: {'; '.join(changes)}")

    def step(self) -> None:
        self._console.advance()

    def skipped(self, step: int, name: str) -> None:
        """Log that the update of a step was not applied, because the tensor `name` was infinite or NaN."""
        first = step * self.state.config.train.accumulate
        batches = f"batch {first}" if self.state.config.train.accumulate == 1 else f"batches from {first}"
        self._record(skipped_step=step, skipped_because=name, batch=first)
        self._console.say(f"step {step + 1:,}: update skipped, because {name} was infinite or NaN ({batches})")

    def training(self, loss: float | None, lap_s: float) -> None:
        """Log the mean loss (nats per character) and the training time of the steps since the last call."""
        config, step = self.state.config, self.state.progress.step
        tokens_per_s = (step - self._line_step) * self.tokens_per_step / lap_s
        left_s = (config.train.max_steps - step) * self.clock.session_s / (step - self._first_step)
        lr = config.optim.lr * lr_factor(config.optim, step - 1, config.train.max_steps)
        self._record(train_loss=loss, lr=lr, context=context_length(config, step - 1), tokens_per_s=round(tokens_per_s))
        self._console.training(step, loss=loss, lr=lr, tokens_per_s=tokens_per_s, left_s=left_s)
        self._line_step = step

    def evaluation(self, result: Evaluation, sample: str, *, is_best: bool) -> None:
        step, self._has_evaluated = self.state.progress.step, True
        self._record(**result.record())
        if sample and self._is_main:
            self.run.add_sample(f"step {step:,}, validation loss {result.loss:.4f}", sample)
        self._console.say(
            f"step {step:,}  validation loss {result.loss:.4f}{' (best)' if is_best else ''}  "
            f"{result.bits_per_character:.3f} bits per {self._unit}  {result.extent}  "
            f"{self.clock.elapsed_s:.0f} s"
        )

    def stopped(self, name: str) -> None:
        self._console.say(f"Stopped by {name} after step {self.state.progress.step:,}. To resume:")
        self._console.say(f"  {_command('train.py', '--resume', self.run.path)}")

    def finished(self, last_sample: str) -> None:
        """Log the end of a run: its best loss, its time, its folder, and the command that samples from it."""
        progress, config = self.state.progress, self.state.config
        has_loss = math.isfinite(progress.best_loss)
        self._record(
            finished=True,
            best_val_loss=progress.best_loss if has_loss else None,
            n_parameters=self.state.model.n_parameters(),
            peak_memory_bytes=progress.peak_memory_bytes,
            machine=f"{self.runtime}, {processor_name()}, PyTorch {torch.__version__}",
        )
        early = progress.step < config.train.max_steps
        self._console.close()
        if progress.step == self._first_step and not self._has_evaluated:
            self._console.say(f"The run is already at step {progress.step:,}; raise train.max_steps to train longer")
        if last_sample:
            self._console.say(f"\n{last_sample.strip()}\n")
        self._console.say(
            f"Finished on the corpus {self.state.corpus.name} after {progress.step:,} steps, "
            f"{self.clock.elapsed_s:.0f} s"
            + (f": no better loss in {config.train.patience} evaluations" if early else "")
        )
        if has_loss:
            self._console.say(
                f"Best validation loss {progress.best_loss:.4f} nats ({progress.best_loss / math.log(2):.3f} bits) per "
                f"{self._unit}, context {config.model.block_size}, at step {progress.best_step:,}"
            )
        self._console.say(f"Settings, metrics, samples and checkpoints are in {self.run.path}")
        self._console.say("To sample text:")
        if self.state.saves_parts:
            self._console.say(f"  {shlex.join(['python', '-m', 'training.join', str(self.run.path)])}")
        self._console.say(f"  {_command('sample.py', '--checkpoint', self.run.path)}")

    def close(self) -> None:
        self._console.close()
        if self._board:
            self._board.close()

    def _record(self, **values) -> None:
        if not self._is_main:
            return
        step, elapsed_s = self.state.progress.step, round(self.clock.elapsed_s, 3)
        record = {"step": step, "elapsed_s": elapsed_s, "corpus": self.state.corpus.name} | values
        append_record(self.run.metrics, record)
        if self._board:
            write_record(self._board, record)


def _command(script: str, *arguments: object) -> str:
    """Return a command line for a script in the folder of the running script."""
    return shlex.join(["python", str(Path(sys.argv[0]).with_name(script)), *map(str, arguments)])
