"""The state of a run: everything that training changes, saved to a checkpoint and restored from it."""

import dataclasses
import importlib
import math
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch.optim import Optimizer
from torch.utils.checkpoint import checkpoint as checkpoint_activations

from data.corpus import Corpus
from model.config import ModelConfig
from model.gpt import GPT
from training.optim.averaging import WeightAverage
from training.optim.gate import UpdateGate
from training.optim.optimizers import make_optimizers
from training.processes.distributed import ALONE, local
from training.runs.checkpoint import Checkpoint, CheckpointError, load_weights
from training.runtime import Runtime
from training.settings.config import Config
from training.settings.config_file import to_dict

# Settings of the model that may change when a run resumes: a trained model computes the same with any of them.
FREE_TO_CHANGE = ("dropout", "attention")
MOST_SKIPPED = 10  # updates in a row; then the run ends


@dataclass
class Progress:
    """The position of a run after `step` steps.

    elapsed_s: time since the command started, over all sessions. loss_sum: training losses of the loss_count updates
    since the last log line. log_sizes: sizes of the run's logs, see `RunFolder.rewind`. averaged_steps: steps in the
    average of the weights. skipped_in_a_row: the newest updates, if they were skipped; see `UpdateGate`.
    evaluation_due: an evaluation of this step was stopped, so the run resumes with it.
    """

    step: int = 0
    elapsed_s: float = 0.0
    peak_memory_bytes: int = 0
    best_loss: float = math.inf  # nats per character, validation
    best_step: int = 0
    evaluations_since_best: int = 0
    loss_sum: float = 0.0
    loss_count: int = 0
    log_sizes: list[int] = field(default_factory=lambda: [0, 0])
    averaged_steps: int = 0
    skipped_in_a_row: int = 0
    evaluation_due: bool = False


class TrainingError(RuntimeError):
    """A run cannot continue; its earlier checkpoints remain valid."""


class DivergedError(TrainingError):
    """The training has failed in the same way in all processes."""


class TrainingState:
    """The model, its optimisers and the progress of a run.

    loss_sum, loss_count: () on the device, the sum of the training losses since the last log line, and the number of
    updates. They stay on the device so that no step waits for a transfer.
    """

    def __init__(self, config: Config, corpus: Corpus, runtime: Runtime):
        self.config, self.corpus, self.world = config, corpus, runtime.world
        self._sharding: ModuleType | None = None
        if config.train.parallel == "fsdp" and self.world.size > 1:
            self._sharding = importlib.import_module("training.processes.sharding")  # takes half a second

        def make() -> GPT:
            torch.manual_seed(config.train.seed)
            return GPT(config.model, len(corpus.vocabulary))

        # Initialised on the CPU and moved: a seed gives the same weights on every device.
        if sharding := self._sharding:
            self.model: GPT = sharding.sharded(make, runtime.device, self.world)
        else:
            self.model = make().to(runtime.device)
        self.optimizers: list[Optimizer] = make_optimizers(
            self.model, config.optim, dtype=runtime.dtype, world=runtime.world
        )
        copy = partial(sharding.copied, make, runtime.device, self.world) if sharding else deepcopy
        self.average = WeightAverage(self.model, config.optim.average_fraction, copy=copy)
        if config.train.activation_checkpointing:
            for block in self.model.blocks:
                block.forward = recomputing(block.forward)  # type: ignore[method-assign]
        self.progress = Progress()
        self.gate = UpdateGate(self.model, sharing=self.world if sharding else ALONE)
        self.loss_sum, self.loss_count = torch.zeros(2, device=runtime.device)

    def is_finished(self) -> bool:
        patience = self.config.train.patience
        if self.progress.evaluation_due:
            return False
        return self.progress.step >= self.config.train.max_steps or (
            0 < patience <= self.progress.evaluations_since_best
        )

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

    def take_skipped(self) -> Iterator[tuple[int, str]]:
        """Yield each update skipped since the last call: its step, and the first tensor that was infinite or NaN.

        Raises TrainingError after MOST_SKIPPED skipped updates in a row.
        """
        for step, name in self.gate.read():
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
        is_best = loss < self.progress.best_loss
        if is_best:
            self.progress.best_loss, self.progress.best_step = loss, self.progress.step
        self.progress.evaluations_since_best = 0 if is_best else self.progress.evaluations_since_best + 1
        return is_best

    def snapshot(self, *, weights_only: bool = False) -> Checkpoint:
        """Return the state, or the weights to sample from, as a checkpoint.

        All processes must call it. If the model is sharded, only the main process receives the tensors, or with
        `train.sharded_checkpoints` each process those that it holds. Raises DivergedError if a weight is not finite.
        """
        self.check_finite()
        self.progress.loss_sum, self.progress.loss_count = self.loss_sum.item(), int(self.loss_count)
        has_average = self.config.optim.average_fraction > 0
        return Checkpoint(
            settings=to_dict(self.config),
            characters=self.corpus.vocabulary.characters,
            corpus={
                "name": self.corpus.name,
                "digest": self.corpus.digest,
                "n_characters": len(self.corpus.ids),
                "n_train": self.corpus.n_train,
            },
            model=self._saved(self.average.model.state_dict()),
            trained=None if weights_only or not has_average else self._saved(self.model.state_dict()),
            optimizers=[
                {} if weights_only else {number: self._saved(state) for number, state in states.items()}
                for states in (optimizer.state_dict()["state"] for optimizer in self.optimizers)
            ],
            progress=dataclasses.asdict(self.progress),
        )

    def restore(self, checkpoint: Checkpoint) -> list[str]:
        """Load a checkpoint and return the settings that have changed since, as text such as "a.b was 1 and is 2".

        Raises CheckpointError if the checkpoint is of another model, optimiser or text, or is past train.max_steps.
        """
        if differences := self._differences(checkpoint):
            raise CheckpointError(
                f"this run cannot be resumed with another model, optimiser or text ({'; '.join(differences)}); "
                "start a new one with --config"
            )
        is_part = checkpoint.part is not None  # this process's part
        load = partial(self._sharding.fill_all, is_part=is_part) if self._sharding else load_weights
        load(self.average.model, checkpoint.model)
        load(self.model, checkpoint.trained or checkpoint.model)
        for optimizer, state in zip(self.optimizers, checkpoint.optimizers, strict=True):
            if self._sharding:
                state = self._sharding.sharded_state(optimizer, state, is_part=is_part)
            # Learning rates and other settings come from the config, which may have changed.
            optimizer.load_state_dict(optimizer.state_dict() | {"state": state})
        self.progress = _restored(checkpoint.progress)
        if checkpoint.trained is None or not self.config.optim.average_fraction:
            self.progress.averaged_steps = 0  # an average starts with the next step, or not at all
        if self.config.train.max_steps < self.progress.step:
            raise CheckpointError(
                f"train.max_steps={self.config.train.max_steps} is below the run's current step {self.progress.step}; "
                "raise it to resume"
            )
        self.loss_sum.fill_(self.progress.loss_sum)
        self.loss_count.fill_(self.progress.loss_count)
        before, now = checkpoint.config(), self.config
        return [
            f"{section.name}.{setting} was {then} and is {value}"
            for section in dataclasses.fields(Config)
            for setting, value in dataclasses.asdict(getattr(now, section.name)).items()
            if (then := getattr(getattr(before, section.name), setting)) != value
        ]

    def check_finite(self) -> None:
        """Raise TrainingError if a weight or the state of an optimiser is infinite or NaN."""
        states = [value for o in self.optimizers for state in o.state.values() for value in state.values()]
        tensors = [*self.model.parameters(), *(value for value in states if isinstance(value, torch.Tensor))]
        finite = [local(tensor).isfinite().all() for tensor in tensors if tensor.device == self.loss_sum.device]
        is_bad = not torch.stack(finite).all()  # a single result, so that the CPU waits for a GPU once
        if self.world.agree(is_bad):
            raise DivergedError(
                f"the weights or the optimiser's state became infinite or NaN by step {self.progress.step:,}; "
                "lower optim.lr or optim.muon_lr, or set optim.grad_clip=1"
            )

    @property
    def saves_parts(self) -> bool:
        """Whether each process saves the part of the state that it holds."""
        return self._sharding is not None and self.config.train.sharded_checkpoints

    def _saved(self, tensors: Mapping[str, Any]) -> Mapping[str, Any]:
        if not self._sharding:
            return tensors
        return self._sharding.parts(tensors) if self.saves_parts else self._sharding.whole(tensors, self.world)

    def _differences(self, checkpoint: Checkpoint) -> list[str]:
        before = checkpoint.config()
        pairs = {
            f"model.{name}": (getattr(before.model, name), getattr(self.config.model, name))
            for name in (f.name for f in dataclasses.fields(ModelConfig))
            if name not in FREE_TO_CHANGE
        }
        for name in ("split", "level"):
            pairs[f"data.{name}"] = (getattr(before.data, name), getattr(self.config.data, name))
        # The best loss so far would not be comparable.
        pairs["train.eval_characters"] = (before.train.eval_characters, self.config.train.eval_characters)
        pairs["optim.name"] = (before.optim.name, self.config.optim.name)
        pairs["the text's SHA-256"] = (f"{checkpoint.corpus['digest'][:12]}...", f"{self.corpus.digest[:12]}...")
        n_train = checkpoint.corpus.get("n_train")  # of a text with a separate validation text
        pairs["the length of the training text"] = (n_train, self.corpus.n_train)
        now, then = set(self.corpus.vocabulary.characters), set(checkpoint.characters)
        pairs["the vocabulary"] = (f"with {_shown(then - now)}", f"with {_shown(now - then)}")
        return [f"{name} was {then} and is {now}" for name, (then, now) in pairs.items() if then != now]


def recomputing(forward: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return a function whose activations are computed again in the backward pass (Chen et al., 2016)."""

    def run(*arguments: Any) -> torch.Tensor:
        if torch.is_grad_enabled():
            return checkpoint_activations(forward, *arguments, use_reentrant=False)
        return forward(*arguments)

    return run


def _restored(values: Mapping[str, Any]) -> Progress:
    """Return a checkpoint's progress. Raises CheckpointError if a value has a wrong type."""
    expected = vars(Progress())
    for name, value in values.items():
        kind = type(expected.get(name))
        if not isinstance(value, (int, float) if kind is float else kind):
            raise CheckpointError(f"the checkpoint's progress cannot have {name}={value!r:.40}; use another checkpoint")
    return Progress(**values)


def _shown(characters: set[str]) -> str:
    return repr("".join(sorted(characters)[:20])) if characters else "nothing else"
