"""One training step: batches, gradients, new weights."""

import contextlib
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from data.batches import TrainingBatches
from model.kernels.cuda_graph import CapturedFunction
from training.optim.optimizers import set_lr
from training.optim.schedule import context_length, lr_factor
from training.runtime import compiled_code
from training.state import TrainingState


class TrainingStep:
    """The step that a run repeats. It depends on the state alone, so a resumed run takes the same steps.

    model: that of the state, wrapped for one of several processes (see `SharedStep`).
    """

    def __init__(self, state: TrainingState, *, model: nn.Module | None = None):
        self.state = state
        settings, device = state.config.train, state.runtime.device
        self.batches = TrainingBatches(
            state.split.train,
            block_size=state.config.model.block_size,
            batch_size=settings.batch_size,
            seed=settings.seed,
            device=device,
        )
        self.forward = model or state.model
        if settings.compile:
            self.forward = torch.compile(self.forward, dynamic=False)  # type: ignore[assignment] # it has the same calls
        # One CUDA graph per step: a GPU finishes small products before Python launches the next ones.
        self.update: Callable[..., None] = self._update
        if device.type == "cuda" and settings.cuda_graphs and self.forward is state.model:
            self.update = CapturedFunction(self._update, state.model, frozen=self._frozen)

    def run(self) -> None:
        """Take one step: the next batches, new weights, and the progress."""
        config, progress = self.state.config, self.state.progress
        step, accumulate = progress.step, config.train.accumulate
        # Dropout depends on (seed, step) only, hashed into the 32 bits of a CPU seed: no state is saved.
        torch.manual_seed(int(np.random.SeedSequence([config.train.seed, step]).generate_state(1)[0]))
        set_lr(self.state.optimizers, lr_factor(config.optim, step, config.train.max_steps))
        size = self.batches.batch_size
        batches = [self.batches.at(progress.windows + micro_step * size) for micro_step in range(accumulate)]
        # With a growing context, early windows are cut into shorter ones.
        shape = (accumulate, -1, context_length(config, step))
        inputs, targets = (torch.stack(ids).view(shape) for ids in zip(*batches, strict=True))
        with compiled_code(inputs.device) if config.train.compile else contextlib.nullcontext():
            self.update(inputs, targets)
        progress.step += 1
        if isinstance(self.update, CapturedFunction) and self.state.is_due(config.train.log_every_steps):
            self.update.check_frozen()
        progress.windows += accumulate * size
        progress.evaluation_due = self.state.is_due(config.train.eval_every_steps)
        if config.optim.average_fraction:
            progress.averaged_steps += 1
            self.state.average.update(progress.averaged_steps)

    def _frozen(self) -> list[object]:
        """Return what a CUDA graph of a step keeps using: the addresses of tensors, and the optimisers' numbers."""
        groups = [group for optimizer in self.state.optimizers for group in optimizer.param_groups]
        used = [*self.state.tensors(), *(x for group in groups for name, x in group.items() if name != "params")]
        return [x.data_ptr() if isinstance(x, Tensor) else x for x in used]

    def _update(self, inputs: Tensor, targets: Tensor) -> None:
        """Change the weights once, given ids (accumulate, B, T). Nothing here waits for the device."""
        state, config = self.state, self.state.config
        losses: list[Tensor] = []
        for micro_inputs, micro_targets in zip(inputs, targets, strict=True):
            with state.runtime.autocast():
                logits = self.forward(micro_inputs)  # (B, T, V)
            loss = F.cross_entropy(logits.flatten(0, 1), micro_targets.flatten()) / len(inputs)
            loss.backward()
            losses.append(loss.detach())
        state.loss_sum += self.shared(torch.stack(losses).sum())
        state.loss_count += 1
        # PyTorch has no norm of sparse gradients, and cannot clip them.
        sparse = set(state.model.sparse_parameters())
        dense = [p for p in state.model.parameters() if p not in sparse]
        state.grad_norm.copy_(nn.utils.get_total_norm([p.grad for p in dense if p.grad is not None]))
        if config.optim.grad_clip:
            nn.utils.clip_grads_with_norm_(dense, config.optim.grad_clip, state.grad_norm)
        for optimizer in state.optimizers:
            optimizer.step()
            optimizer.zero_grad()

    def shared(self, loss: Tensor) -> Tensor:
        """Return the mean loss of all processes that take this step."""
        return loss
