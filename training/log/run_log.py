"""The log of a run: lines on the console, records in metrics.jsonl, samples, and the optional loggers."""

import contextlib
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import torch
from tqdm import tqdm

from cli.console import Console
from cli.errors import explain
from cli.hints import PROJECT, to_paste
from model.generate import Sampling
from training.evaluation import Evaluation
from training.log import sentences
from training.log.loggers import start_logger
from training.optim.schedule import context_length, lr_factor
from training.runs.run_folder import RunFolder
from training.runtime import processor_name
from training.sampling import TextSampler
from training.state import TrainingState


class RunLog:
    """The log of a session of a run. started_s: `time.perf_counter()` at the start of the command."""

    def __init__(self, run: RunFolder, state: TrainingState, started_s: float):
        self.run, self.state = run, state
        step = state.progress.step
        self.clock = Clock(started_s, state.progress.elapsed_s, step)
        self._last_sample: str | None = None
        self._last_loss = state.progress.best_loss  # in validation; before this command evaluates, the best one
        self._session = {"date": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", "commit": commit()}
        self._console = Console(step, state.config.train.max_steps)
        self._logger: Any = None
        if state.config.train.logger != "none":
            self._logger = start_logger(state.config, run.path, from_step=step)

    def close(self) -> None:
        self._console.close()
        self._call_logger("finish")

    def introduce(self, changes: Sequence[str]) -> None:
        """Say what begins, and measure the speed from now on. changes: settings that differ from earlier sessions."""
        self._say(sentences.introduction(self.state, self.run.path, changes))
        self.clock.start()

    def step(self) -> None:
        """Log a step and, every `train.log_every_steps` steps, the speed and mean loss (nats) since the last time."""
        self._console.advance()
        config, step = self.state.config, self.state.progress.step
        if not self.state.is_due(config.train.log_every_steps):
            return
        loss, tokens_per_s = self.state.take_mean_loss(), self.clock.lap(step) * config.tokens_per_step
        lr = config.optim.lr * lr_factor(config.optim, step - 1, config.train.max_steps)
        self._record(
            train_loss=loss,
            lr=lr,
            context=context_length(config, step - 1),
            grad_norm=self.state.grad_norm.item(),
            tokens_per_s=round(tokens_per_s),
        )
        left_s = self.clock.left_s(step, config.train.max_steps)
        self._console.training(step, loss=loss, lr=lr, tokens_per_s=tokens_per_s, left_s=left_s)

    def evaluation(self, result: Evaluation, *, is_best: bool) -> None:
        """Log a validation loss and a sampled text."""
        settings, step, corpus = self.state.config.train, self.state.progress.step, self.state.corpus
        self._record(
            val_loss=result.loss,
            val_bits_per_char=result.bits_per_character,
            val_characters=result.n_characters,
            val_split_characters=result.n_available,
            val_context=result.context,
            val_passage=corpus.passage(self.state.split),
        )
        self._last_loss = result.loss
        sampler = TextSampler(self.state.average.model, corpus.vocabulary, Sampling(temperature=0.8))
        # The same seed for every sample, so that samples can be compared.
        self._last_sample = sampler.text("", settings.sample_length, seed=settings.seed)
        if self._last_sample:
            self.run.add_sample(f"step {step:,}, validation loss {result.loss:.4f}", self._last_sample)
        self._say([sentences.describe_evaluation(result, step, self.clock.elapsed_s, is_best=is_best)])

    def stopped(self, signal_name: str) -> None:
        resume = to_paste("train.py", "--resume", self.run.path)
        self._say([f"Stopped by {signal_name} after step {self.state.progress.step:,}. To resume:", f"  {resume}"])

    def finished(self) -> None:
        """Log the end of a run: its best loss, time and folder, when it was started or last resumed with which code."""
        state, progress = self.state, self.state.progress
        if not self.run.is_finished():  # a session that changes nothing leaves the record of the code that trained
            self._record(
                finished=True,
                best_val_loss=progress.best_loss if math.isfinite(progress.best_loss) else None,
                n_parameters=state.model.n_parameters(),
                peak_memory_bytes=progress.peak_memory_bytes,
                machine=f"{state.runtime}, {processor_name()}, PyTorch {torch.__version__}",
                **self._session,
            )
        self._console.close()
        if self._last_sample:
            self._say([f"\n{self._last_sample.strip()}\n"])
        did_nothing = progress.step == self.clock.first_step and self._last_sample is None
        elapsed_s = self.clock.elapsed_s
        self._say(sentences.conclusion(state, self.run.path, elapsed_s, self._last_loss, did_nothing=did_nothing))

    def _say(self, lines: Sequence[str]) -> None:
        for line in lines:
            self._console.say(line)

    def _record(self, **values) -> None:
        step, elapsed_s = self.state.progress.step, round(self.clock.elapsed_s, 3)
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


class Clock:
    """Times in seconds.

    started_s: `time.perf_counter()` at the start of the command. earlier_s: the time of the run's earlier sessions.
    """

    def __init__(self, started_s: float, earlier_s: float, step: int):
        self.origin_s = started_s - earlier_s
        self.first_step = self.lap_step = step
        self.session_start_s = self.lap_start_s = started_s

    def start(self) -> None:
        """Measure the speed from now on."""
        self.session_start_s = self.lap_start_s = time.perf_counter()

    @property
    def elapsed_s(self) -> float:
        """Time since the command started, plus the time of the run's earlier sessions."""
        return time.perf_counter() - self.origin_s

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Exclude the time inside the context from the speed."""
        began_s = time.perf_counter()
        yield
        self.lap_start_s += time.perf_counter() - began_s

    def lap(self, step: int) -> float:
        """Return the steps per second since the last call, and begin a new lap at this step."""
        now_s = time.perf_counter()
        steps_per_s = (step - self.lap_step) / (now_s - self.lap_start_s)
        self.lap_step, self.lap_start_s = step, now_s
        return steps_per_s

    def left_s(self, step: int, max_steps: int) -> float:
        """Return the time that the remaining steps will take, pauses included, if they go on like those before."""
        return (max_steps - step) * (time.perf_counter() - self.session_start_s) / (step - self.first_step)


def commit() -> str | None:
    """Return the Git commit of this code, with "-dirty" after it if files have changed, or None if it is unknown."""
    command = ["git", "-C", str(PROJECT), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    environment = os.environ | {"GIT_CEILING_DIRECTORIES": str(PROJECT.parent)}  # no repository around a copy
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
