"""The log of a run: lines on the console, records in metrics.jsonl, samples, the optional loggers, and the clock."""

import contextlib
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import torch
from tqdm import tqdm

from cli.console import Console
from cli.errors import explain
from cli.hints import PROJECT, to_paste
from model.generate import Sampler, Sampling
from training.evaluation import Evaluation
from training.log.loggers import start_logger
from training.optim.schedule import context_length, lr_factor
from training.runs.run_folder import RunFolder
from training.runtime import processor_name, product_rate
from training.sampling import TextSampler
from training.state import ADVICE, TrainingState

MANY_PASSES, GOOD_PASSES = 10, 5  # through the training text, without dropout
RISEN = 3  # evaluations without a better loss


class RunLog:
    """The log of a run: its metrics, its samples and what the console shows; times are in seconds.

    started_s: `time.perf_counter()` at the start of the command.
    """

    def __init__(self, run: RunFolder, state: TrainingState, started_s: float):
        self.run, self.state = run, state
        self._origin_s = started_s - state.progress.elapsed_s
        self._session_start_s = self._lap_start_s = 0.0  # see `introduce`
        self._paused_s = 0.0  # in this lap
        self._first_step = self._line_step = state.progress.step
        self._last_sample: str | None = None
        self._last_loss = state.progress.best_loss  # in validation; before this command evaluates, the best one
        self._product_rate = product_rate(state.runtime)
        self._session = {"date": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", "commit": commit()}
        self._console = Console(self._first_step, state.config.train.max_steps)
        self._logger: Any = None
        if state.config.train.logger != "none":
            self._logger = start_logger(state.config, run.path, from_step=self._first_step)

    @property
    def elapsed_s(self) -> float:
        """Time since the command started, plus the time of the run's earlier sessions."""
        return time.perf_counter() - self._origin_s

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Exclude the time inside the context from the speed of training."""
        began_s = time.perf_counter()
        yield
        self._paused_s += time.perf_counter() - began_s

    @cached_property
    def _sampler(self) -> TextSampler:
        """The one sampler of a run, because a GPU captures its graph once."""
        state, sampling = self.state, Sampling(temperature=0.8)
        sampler = Sampler(state.average.model, 1, sampling=sampling, cuda_graph=state.config.train.cuda_graphs)
        return TextSampler(sampler, state.corpus.vocabulary)

    def close(self) -> None:
        self._console.close()
        self._call_logger("finish")

    def introduce(self, changes: Sequence[str]) -> None:
        """Print the corpus, model, device and folder, and measure the speed from now on.

        changes: settings that differ from those of earlier sessions.
        """
        config, corpus, progress = self.state.config, self.state.corpus, self.state.progress
        train_ids, val_ids, test_ids = self.state.split
        n_test = len(test_ids) - 1
        self._console.say(
            f"Corpus {corpus.name}: {corpus.n_files:,} file{'s' * (corpus.n_files != 1)}, {len(corpus.ids):,} "
            f"characters, a vocabulary of {len(corpus.vocabulary):,}; "
            f"{len(train_ids):,} for training, {len(val_ids) - 1:,} for validation"
            + (f", {n_test:,} for the test" if n_test else "")
        )
        self._console.say(
            f"Model: {self.state.model.n_parameters():,} parameters, {config.model.in_words}, "
            f"context length {config.model.block_size}"
        )
        n_passes = config.train.max_steps * config.tokens_per_step / len(train_ids)
        self._console.say(f"{config.train.max_steps:,} steps read the training text {n_passes:.1f} times")
        if n_passes > MANY_PASSES and not config.model.dropout:
            fewer = max(1, round(GOOD_PASSES / n_passes * config.train.max_steps))
            self._console.say(
                f"Warning: so often, it learns the text by heart. Read it about {GOOD_PASSES} times, with "
                f"train.max_steps={fewer}; or set model.dropout=0.2, and train.patience=3 to stop when the loss rises"
            )
        if config.train.ancestor:
            self._console.say(f"Started from the weights of {config.train.ancestor}")
        resumed = f", resuming from step {progress.step:,}" if progress.step else ""
        self._console.say(f"Running on {self.state.runtime} into {self.run.path}{resumed}")
        if changes:
            self._console.say(f"Changed settings: {'; '.join(changes)}")
        self._session_start_s = self._lap_start_s = time.perf_counter()

    def step(self) -> None:
        """Log a step and, every `train.log_every_steps` steps, the speed and mean loss (nats) since the last time."""
        self._console.advance()
        config, step = self.state.config, self.state.progress.step
        if not self.state.is_due(config.train.log_every_steps):
            if config.train.compile and step == self._first_step + 1:  # which has compiled the step
                self._line_step, self._lap_start_s, self._paused_s = step, time.perf_counter(), 0.0
            return
        loss, now_s = self.state.take_mean_loss(), time.perf_counter()
        lap_s = now_s - self._lap_start_s - self._paused_s
        tokens_per_s = (step - self._line_step) * config.tokens_per_step / lap_s
        left_s = (config.train.max_steps - step) * (now_s - self._session_start_s) / (step - self._first_step)
        lr = config.optim.lr * lr_factor(config.optim, step - 1, config.train.max_steps)
        context, grad_norm = context_length(config, step - 1), self.state.grad_norm.item()
        share = tokens_per_s * self.state.model.flops_per_character(context) / self._product_rate
        self._record(
            train_loss=loss,
            lr=lr,
            context=context,
            grad_norm=grad_norm,
            tokens_per_s=round(tokens_per_s),
            product_share=round(share, 4),
        )
        self._console.training(step, loss=loss, lr=lr, tokens_per_s=tokens_per_s, product_share=share, left_s=left_s)
        self._line_step, self._lap_start_s, self._paused_s = step, now_s, 0.0

    def evaluation(self, result: Evaluation, *, is_best: bool) -> None:
        """Log a validation loss and a sampled text."""
        settings, step, corpus = self.state.config.train, self.state.progress.step, self.state.corpus
        self._record(**result.record(), val_passage=corpus.passage(self.state.split))
        self._last_loss = result.loss
        # The same seed for every sample, so that samples can be compared.
        self._last_sample = self._sampler.text("", settings.sample_length, seed=settings.seed)
        if self._last_sample:
            self.run.add_sample(f"step {step:,}, validation loss {result.loss:.4f}", self._last_sample)
        self._console.say(
            f"step {step:,}  validation loss {result.loss:.4f}{' best' if is_best else ''}  "
            f"{result.bits_per_character:.3f} bits per character  {result.extent}  "
            f"{self.elapsed_s:.0f} s"
        )

    def stopped(self, name: str) -> None:
        self._console.say(f"Stopped by {name} after step {self.state.progress.step:,}. To resume:")
        self._console.say(f"  {to_paste('train.py', '--resume', self.run.path)}")

    def finished(self) -> None:
        """Log the end of a run: its best loss, time and folder, when it was started or last resumed with which code."""
        progress, config = self.state.progress, self.state.config
        has_loss = math.isfinite(progress.best_loss)
        if not self.run.is_finished():  # a session that changes nothing leaves the record of the code that trained
            self._record(
                finished=True,
                best_val_loss=progress.best_loss if has_loss else None,
                n_parameters=self.state.model.n_parameters(),
                peak_memory_bytes=progress.peak_memory_bytes,
                machine=f"{self.state.runtime}, {processor_name()}, PyTorch {torch.__version__}",
                **self._session,
            )
        limits = progress.limits_reached(config.train)
        self._console.close()
        if self._last_sample:
            self._console.say(f"\n{self._last_sample.strip()}\n")
        if progress.step == self._first_step and self._last_sample is None:
            longer = f"raise {' and '.join(limits)} to train longer"
            self._console.say(f"The run is already at step {progress.step:,}; {longer}")
        else:
            self._console.say(
                f"Finished on the corpus {self.state.corpus.name} after {progress.step:,} steps, "
                f"{self.elapsed_s:.0f} s"
                + (f": no better loss in {config.train.patience} evaluations" if "train.patience" in limits else "")
            )
        if has_loss:
            self._console.say(
                f"Best validation loss {progress.best_loss:.4f} nats ({progress.best_loss / math.log(2):.3f} bits) per "
                f"character, context {config.model.block_size}, at step {progress.best_step:,}"
            )
        if progress.evaluations_since_best >= RISEN:
            self._console.say(
                f"The validation loss has not been lower since step {progress.best_step:,}. If the training loss still "
                f"falls, the model learns its text by heart: train for about {progress.best_step:,} steps, raise "
                "model.dropout, or give it more text"
            )
        guessing = math.log(len(self.state.corpus.vocabulary))
        if guessing < self._last_loss < math.inf:
            worse = f"The last loss, {self._last_loss:.4f}, is worse than that of guessing, {guessing:.4f}"
            self._console.say(f"{worse}: {ADVICE}")
        self._console.say(f"Settings, metrics, samples and checkpoints are in {self.run.path}")
        self._console.say("To sample text:")
        self._console.say(f"  {to_paste('sample.py', '--checkpoint', self.run.path)}")

    def _record(self, **values) -> None:
        step, elapsed_s = self.state.progress.step, round(self.elapsed_s, 3)
        record = {"step": step, "elapsed_s": elapsed_s, "corpus": self.state.corpus.name} | values
        self.run.add_record(record)
        numbers = {name: x for name, x in record.items() if isinstance(x, (int, float)) and name != "step"}
        self._call_logger("log", numbers, step=step)

    def _call_logger(self, method: str, *arguments: Any, **named: Any) -> None:
        """Call the optional logger. It cannot end the run, which goes on without it after an error."""
        try:
            if self._logger is not None:
                getattr(self._logger, method)(*arguments, **named)
        except (Exception, SystemExit) as error:
            self._logger = None
            failed = f"train.logger={self.state.config.train.logger} failed ({explain(error)})"
            tqdm.write(f"train.py: warning: {failed}; the run goes on without it", file=sys.stderr)


def commit() -> str | None:
    """Return the Git commit of this code, with "-dirty" after it if files have changed, or None if it is unknown."""
    command = ["git", "-C", str(PROJECT), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    # A Git hook sets GIT_DIR, GIT_INDEX_FILE and others for its repository; GIT_CONFIG_COUNT and others are the user's.
    environment = {name: value for name, value in os.environ.items() if not re.match("GIT_(?!CONFIG)", name)}
    environment["GIT_CEILING_DIRECTORIES"] = str(PROJECT.parent)  # no repository around a copy
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
