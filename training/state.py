"""The state of a run: everything that training changes."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.checkpoint import checkpoint as checkpoint_activations

from cli.errors import UserError
from data.corpus import Corpus
from model.gpt import GPT
from training.config import Config
from training.optim.averaging import WeightAverage
from training.optim.gate import UpdateGate
from training.optim.loss_scale import INITIAL_SCALE, LossScale
from training.optim.optimizers import make_optimizers
from training.runtime import Runtime

MOST_SKIPPED = 10  # updates in a row; then the run ends


@dataclass
class Progress:
    """The position of a run after `step` steps.

    windows: windows of the training text that the steps have used. elapsed_s: time since the command started, over all
    sessions. loss_sum: training losses of the loss_count updates since the last log line. log_sizes: sizes of the run's
    logs, see `RunFolder.begin_session`. averaged_steps: steps in the average of the weights. loss_scale,
    loss_scale_age: see `LossScale`. skipped_in_a_row: how many of the newest updates were skipped; see `UpdateGate`.
    evaluation_due: an evaluation of this step was stopped, so the run resumes with it.
    """

    step: int = 0
    windows: int = 0
    elapsed_s: float = 0.0
    peak_memory_bytes: int = 0
    best_loss: float = math.inf  # nats per character, validation
    best_step: int = 0
    evaluations_since_best: int = 0
    loss_sum: float = 0.0
    loss_count: int = 0
    log_sizes: list[int] = field(default_factory=lambda: [0, 0])
    averaged_steps: int = 0
    loss_scale: float = INITIAL_SCALE
    loss_scale_age: int = 0
    skipped_in_a_row: int = 0
    evaluation_due: bool = False


class TrainingError(UserError):
    """A run cannot continue; its earlier checkpoints remain valid."""

    status = 1


class DivergedError(TrainingError):
    """Losses, gradients or weights became infinite or NaN, in the same step of all processes."""


class TrainingState:
    """The model, its optimisers and the progress of a run.

    loss_sum, loss_count: () on the device, the sum of the training losses since the last log line, and the number of
    updates. They stay on the device so that no step waits for a transfer.
    """

    def __init__(self, config: Config, corpus: Corpus, runtime: Runtime):
        self.config, self.corpus, self.runtime = config, corpus, runtime
        self.processes = runtime.processes

        def make() -> GPT:
            # Initialised on the CPU: a seed gives the same weights on every device and in every process.
            torch.manual_seed(config.train.seed)
            return GPT(config.model, len(corpus.vocabulary))

        self.model = self.processes.place(make, runtime.device)
        fraction = config.optim.average_fraction
        averaged = self.processes.place(make, runtime.device).requires_grad_(False) if fraction else self.model
        self.average = WeightAverage(self.model, averaged, fraction, self.processes)
        self.optimizers: list[Optimizer] = make_optimizers(
            self.model,
            config.optim,
            dtype=runtime.dtype if runtime.dtype == torch.bfloat16 else torch.float32,
            processes=self.processes,
        )
        if config.train.activation_checkpointing:
            for block in self.model.blocks:
                block.forward = recomputing(block.forward)  # type: ignore[method-assign]
        self.progress = Progress()
        self.gate = UpdateGate(self.model, self.processes)
        self.loss_scale = LossScale(runtime.device) if runtime.dtype == torch.float16 else None
        self.loss_sum, self.loss_count = torch.zeros(2, device=runtime.device)

    def is_due(self, every_steps: int) -> bool:
        """Return whether this step is a multiple of every_steps, or the last one."""
        return self.progress.step % every_steps == 0 or self.progress.step == self.config.train.max_steps

    def is_finished(self) -> bool:
        patience, progress = self.config.train.patience, self.progress
        is_out_of_patience = 0 < patience <= progress.evaluations_since_best
        return not progress.evaluation_due and (progress.step >= self.config.train.max_steps or is_out_of_patience)

    def take_mean_loss(self) -> float | None:
        """Return the mean training loss since the last call, or None without any update, and start a new mean.

        Raises TrainingError if a weight is not finite.
        """
        self.check_finite()
        count = self.loss_count.item()
        mean = self.loss_sum.item() / count if count else None
        self.loss_sum.zero_()
        self.loss_count.zero_()
        return mean

    def take_skipped(self, *, wait: bool = False) -> Iterator[tuple[int, str]]:
        """Yield each update skipped since the last call: its step, and the first tensor that was infinite or NaN.

        wait: see `UpdateGate.read`. Raises TrainingError after MOST_SKIPPED skipped updates in a row.
        """
        for step, name in self.gate.read(wait=wait):
            if name is None:
                self.progress.skipped_in_a_row = 0
                continue
            self.progress.skipped_in_a_row += 1
            yield step, name
            if self.progress.skipped_in_a_row >= MOST_SKIPPED:
                raise DivergedError(
                    f"{MOST_SKIPPED} updates in a row were skipped, because {name} was infinite or NaN; lower optim.lr "
                    "or optim.muon_lr, or set optim.grad_clip=1"
                )

    def note_evaluation(self, loss: float) -> bool:
        """Record a validation loss and return whether it is the best so far."""
        progress = self.progress
        progress.evaluation_due = False
        is_best = loss < progress.best_loss
        if is_best:
            progress.best_loss, progress.best_step = loss, progress.step
        progress.evaluations_since_best = 0 if is_best else progress.evaluations_since_best + 1
        return is_best

    def check_finite(self) -> None:
        """Raise TrainingError if a weight or the state of an optimiser is infinite or NaN."""
        states = [value for o in self.optimizers for state in o.state.values() for value in state.values()]
        tensors = [*self.model.parameters(), *(value for value in states if isinstance(value, Tensor))]
        local = self.processes.local
        finite = [local(tensor).isfinite().all() for tensor in tensors if tensor.device == self.loss_sum.device]
        is_bad = not torch.stack(finite).all()  # a single result, so that the CPU waits for a GPU once
        if self.processes.agree(int(is_bad)):
            raise DivergedError(
                f"the weights or the optimiser's state became infinite or NaN by step {self.progress.step:,}; "
                "lower optim.lr or optim.muon_lr, or set optim.grad_clip=1"
            )


def recomputing(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a function whose activations are computed again in the backward pass (Chen et al., 2016)."""

    def run(*arguments: Any) -> Tensor:
        if torch.is_grad_enabled():
            return checkpoint_activations(forward, *arguments, use_reentrant=False)
        return forward(*arguments)

    return run
