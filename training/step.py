"""One training step: batches, gradients, new weights."""

import contextlib
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from data.batches import Ids, TrainingBatches
from model.dropout import divide_batch
from model.kernels.cuda_graph import CapturedFunction
from training.optim.optimizers import set_lr
from training.optim.schedule import context_length, lr_factor
from training.state import TrainingError, TrainingState


class TrainingStep:
    """A training step that updates the state; it is a pure function of (seed, step) and of the state before it.

    ids: the training text. check_stop: called if the model cannot be compiled; it may raise an exception.
    """

    def __init__(self, state: TrainingState, ids: Ids, *, check_stop: Callable[[], None] = lambda: None):
        self.state, self.check_stop, self.processes = state, check_stop, state.processes
        settings, device = state.config.train, state.runtime.device
        self.batches = TrainingBatches(
            ids,
            block_size=state.config.model.block_size,
            batch_size=settings.batch_size,
            seed=settings.seed,
            device=device,
            part=self.processes.share_of(settings.batch_size),
        )
        self.wrapped = self.processes.wrap(state.model)
        self.forward = torch.compile(self.wrapped, dynamic=False) if settings.compile else self.wrapped
        divide_batch(self.processes.rank)
        # One CUDA graph per step: a GPU finishes small products before Python launches the next ones. With several
        # processes, PyTorch documents this only for NCCL without its error handling, which ends a run that is stuck.
        self.update: Callable[..., None] = self._update
        recomputes = settings.activation_checkpointing  # reads the generator's state, which a graph cannot
        if device.type == "cuda" and self.processes.size == 1 and not settings.compile and not recomputes:
            self.update = CapturedFunction(self._update, state.model)

    def run(self) -> None:
        config, progress = self.state.config, self.state.progress
        step, accumulate = progress.step, config.train.accumulate
        if config.model.dropout:
            # Dropout depends on (seed, step) only, hashed into the 32 bits of a CPU seed, so no state is saved.
            torch.manual_seed(self._dropout_seed(step))
        set_lr(self.state.optimizers, lr_factor(config.optim, step, config.train.max_steps))
        size = self.batches.batch_size
        batches = [self.batches.at(progress.windows + micro_step * size) for micro_step in range(accumulate)]
        inputs, targets = (
            # With a growing context, early windows are cut into shorter ones.
            torch.stack(ids).view(accumulate, -1, context_length(config, step))
            for ids in zip(*batches, strict=True)
        )
        try:
            self.update(inputs, targets)
        except RuntimeError as error:
            if not type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
                raise
            self.check_stop()  # Ctrl-C in a terminal ends the compiler too
            reason = str(error).splitlines()[0]
            raise TrainingError(
                f"train.compile=true: the model could not be compiled ({reason}); install a C++ compiler such as g++, "
                "or set train.compile=false"
            ) from error
        self.state.gate.record(step)
        progress.step += 1
        progress.windows += accumulate * size
        progress.evaluation_due = self.state.is_due(config.train.eval_every_steps)
        if config.optim.average_fraction:
            progress.averaged_steps += 1
            self.state.average.update(progress.averaged_steps)

    def _dropout_seed(self, step: int) -> int:
        entropy = [self.state.config.train.seed, step]
        if self.state.runtime.device.type != "cpu" or self.state.config.train.compile:
            entropy += [self.processes.rank] * (self.processes.rank > 0)  # or processes would drop the same
        return int(np.random.SeedSequence(entropy).generate_state(1)[0])

    def _update(self, inputs: Tensor, targets: Tensor) -> None:
        """Compute a step for ids (accumulate, B, T). Nothing here waits for the device."""
        state, config = self.state, self.state.config
        losses: list[Tensor] = []
        for micro_inputs, micro_targets in zip(inputs, targets, strict=True):
            is_last = len(losses) == len(inputs) - 1
            with contextlib.nullcontext() if is_last else self.processes.accumulating(self.wrapped):
                with state.runtime.autocast():
                    logits = self.forward(micro_inputs)  # (B, T, V)
                loss = F.cross_entropy(logits.flatten(0, 1), micro_targets.flatten()) / len(inputs)
                (loss if state.loss_scale is None else loss * state.loss_scale.value).backward()
            losses.append(loss.detach())
        loss = self.processes.sum(torch.stack(losses).sum()) / self.processes.size
        if state.loss_scale is not None:
            state.loss_scale.remove_from([p.grad for p in state.model.parameters() if p.grad is not None])
        state.gate.check(loss)
        found_inf = state.gate.found_inf
        if state.loss_scale is not None:
            state.loss_scale.update(found_inf)
        state.loss_sum += loss.where(found_inf == 0, 0)
        state.loss_count += 1 - found_inf
        if config.optim.grad_clip:
            nn.utils.clip_grad_norm_(state.model.parameters(), config.optim.grad_clip)
        for optimizer in state.optimizers:
            optimizer.found_inf = found_inf  # type: ignore[attr-defined] # read by fused AdamW and by Muon
            optimizer.step()
            optimizer.zero_grad()
