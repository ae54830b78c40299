"""The state of a run: everything that training changes."""

import dataclasses
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from cli.errors import UserError
from data.corpus import Corpus
from model.gpt import GPT
from training.config import Config, TrainConfig
from training.optim.optimizers import REMEMBERED, WeightAverage, make_optimizers
from training.runtime import Runtime


@dataclass
class Progress:
    """The position of a run after `step` steps.

    windows: windows of the training text that the steps have used. elapsed_s: time that the run has taken, over all
    sessions. log_sizes: sizes of the run's logs, see `RunFolder.session`. averaged_steps: steps in the average of
    the weights. evaluation_due: the evaluation of this step has not finished; a run that resumes begins with it.
    """

    step: int = 0
    windows: int = 0
    elapsed_s: float = 0.0
    peak_memory_bytes: int = 0
    best_loss: float = math.inf  # nats per character, validation
    best_step: int = 0
    evaluations_since_best: int = 0
    log_sizes: list[int] = field(default_factory=lambda: [0, 0])
    averaged_steps: int = 0
    evaluation_due: bool = False

    def limits_reached(self, settings: TrainConfig) -> list[str]:
        """Return the settings that end a run here, and would have to be higher for it to go on."""
        is_reached = {
            "train.max_steps": self.step >= settings.max_steps,
            "train.patience": 0 < settings.patience <= self.evaluations_since_best,
        }
        return [name for name, reached in is_reached.items() if reached and not self.evaluation_due]


class TrainingError(UserError):
    """A run cannot continue; its earlier checkpoints remain valid."""

    status = 1


WORST_LOSS = 100.0  # nats per character; a working model is far below, on any text
ADVICE = "lower optim.lr or optim.muon_lr, or set optim.grad_clip=1"


class TrainingState:
    """The model, its optimisers and the progress of a run.

    average: its model is the one to evaluate and sample with; without an average, it is the trained model itself.
    loss_sum, loss_count: () on the device, the sum of the training losses since the last log line, and the number of
    steps. They stay on the device so that no step waits for a transfer, as does grad_norm (), the norm of the last
    gradient, without the rows of n-grams and before clipping. split: the parts of the text. origin: see
    `origin_of`.
    """

    def __init__(self, config: Config, corpus: Corpus, runtime: Runtime):
        self.config, self.corpus, self.runtime = config, corpus, runtime
        self.split = corpus.split(config.data.split, config.model.block_size)
        # Initialised on the CPU: a seed gives the same weights on every device.
        torch.manual_seed(config.train.seed)
        self.model = GPT(config.model, len(corpus.vocabulary))
        if self.model.ngrams:
            self.model.ngrams.count(self.split.train)
            self.model.ngrams.set_passes(self.n_passes)
        self.model.to(runtime.device)
        self.average = WeightAverage(self.model, config.optim.average_fraction)
        self.optimizers: list[Optimizer] = make_optimizers(
            self.model, config.optim, characters=config.tokens_per_step, dtype=runtime.dtype
        )
        self.progress, self.origin = Progress(), origin_of(corpus, runtime)
        self.loss_sum, self.loss_count, self.grad_norm = torch.zeros(3, device=runtime.device)

    @property
    def n_passes(self) -> float:
        """How often the whole run reads its training text."""
        return self.config.train.max_steps * self.config.tokens_per_step / len(self.split.train)

    def tensors(self) -> dict[str, Tensor]:
        """Return every tensor by a plain name.

        model.NAME is a weight to sample with; if it is an average, trained.NAME is the weight that training continues
        with. optimizer.KIND.NAME is what an optimiser remembers of a weight, such as optimizer.exp_avg.lm_head.weight.
        """
        tensors = {f"model.{name}": x for name, x in self.average.model.state_dict().items()}
        tensors |= {f"trained.{name}": self.model.get_parameter(name) for name in self.average.names}
        for name, parameter in self.model.named_parameters():
            for optimizer in self.optimizers:
                for kind, value in optimizer.state.get(parameter, {}).items():
                    tensors[f"optimizer.{kind}.{name}"] = value
        return tensors | {"loss_sum": self.loss_sum, "loss_count": self.loss_count}

    def load(self, progress: Progress, tensors: Mapping[str, Tensor]) -> None:
        """Load a progress and `tensors`, or the weights of a model alone; the average may be new or be dropped.

        Raises UserError if what an optimiser remembers is not its own or, after the first step, is missing.
        """
        weights, trained = part_of(tensors, "model."), part_of(tensors, "trained.")
        self.average.model.load_state_dict(weights)
        self.model.load_state_dict(weights | trained)
        if self.model.ngrams:
            self.model.ngrams.set_passes(self.n_passes)  # those of this run, which may be longer now, or another
        self._load_optimizers(part_of(tensors, "optimizer."), progress.step)
        if {"loss_sum", "loss_count"} <= tensors.keys():
            self.loss_sum.copy_(tensors["loss_sum"])
            self.loss_count.copy_(tensors["loss_count"])
        self.progress = dataclasses.replace(progress)
        if self.average.model is self.model or not trained:
            self.progress.averaged_steps = 0  # an average starts with the next step, or not at all

    def _load_optimizers(self, tensors: Mapping[str, Tensor], step: int) -> None:
        """Load what the optimisers remember of every trained parameter; see `load`."""
        parameters = dict(self.model.named_parameters())
        optimizer_of = {p: o for o in self.optimizers for group in o.param_groups for p in group["params"]}
        likes = {
            (kind, name): like
            for name, p in parameters.items()
            if step and p.requires_grad
            for kind, like in REMEMBERED[type(optimizer_of[p])](p).items()
        }
        found = {(key.partition(".")[0], key.partition(".")[2]): x for key, x in tensors.items()}
        shapes = [{key: (x.shape, x.dtype) for key, x in each.items()} for each in (found, likes)]
        if shapes[0] != shapes[1]:
            raise UserError(
                f"the checkpoint of step {step:,} lacks what its optimisers remember, or has something else; "
                "start a new run from its weights with --from"
            )
        for (kind, name), x in found.items():
            p = parameters[name]
            optimizer_of[p].state[p][kind] = x.to(p.device, copy=True)

    def is_due(self, every_steps: int) -> bool:
        """Return whether this step is a multiple of every_steps, or the last one."""
        return self.progress.step % every_steps == 0 or self.progress.step == self.config.train.max_steps

    def is_finished(self) -> bool:
        return bool(self.progress.limits_reached(self.config.train))

    def take_mean_loss(self) -> float:
        """Return the mean training loss of the steps since the last call, and start a new mean.

        Raises TrainingError as `check_finite` does.
        """
        self.check_finite()
        mean = self.loss_sum.item() / self.loss_count.item()
        self.loss_sum.zero_()
        self.loss_count.zero_()
        return mean

    def note_evaluation(self, loss: float) -> bool:
        """Record a validation loss and return whether it is the best so far. Raises TrainingError if it is absurd."""
        progress = self.progress
        if not loss < WORST_LOSS:
            raise TrainingError(f"the validation loss is {loss:.3g} at step {progress.step:,}; {ADVICE}")
        progress.evaluation_due = False
        is_best = loss < progress.best_loss
        if is_best:
            progress.best_loss, progress.best_step = loss, progress.step
        progress.evaluations_since_best = 0 if is_best else progress.evaluations_since_best + 1
        return is_best

    def check_finite(self) -> None:
        """Raise TrainingError if the loss, a weight or the state of an optimiser is infinite or NaN."""
        remembered = [x for optimizer in self.optimizers for state in optimizer.state.values() for x in state.values()]
        tensors = [self.loss_sum, *self.model.parameters(), *remembered]
        norms = torch._foreach_norm([x for x in tensors if x.is_floating_point()])
        if not torch.stack(norms).isfinite().all():  # a single result, so that the CPU waits for a GPU once
            raise TrainingError(
                f"the loss, the weights or the optimiser's state became infinite or NaN by step "
                f"{self.progress.step:,}; {ADVICE}"
            )


def origin_of(corpus: Corpus, runtime: Runtime) -> dict[str, Any]:
    """Return what determines a run besides its settings.

    ancestor: SHA-256 of the weights that it started with, if they are those of another model; see `adopt`. arithmetic:
    with the same, runs on two devices differ in the last bits only. earlier: see `earlier_values`.
    """
    characters = corpus.vocabulary.characters
    return {
        "text": corpus.digest[:16] + (f" and {corpus.val_digest[:16]}" if corpus.n_train is not None else ""),
        "vocabulary": f"{len(characters)} characters ({hashlib.sha256(characters.encode()).hexdigest()[:8]})",
        "ancestor": None,
        "arithmetic": f"{str(runtime.dtype).removeprefix('torch.')} on {runtime.device.type}",
        "earlier": {},
    }


def part_of(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names start with the prefix, under names without it."""
    return {name.removeprefix(prefix): x for name, x in tensors.items() if name.startswith(prefix)}
