"""One training step: batches, gradients, new weights."""

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from data.batches import TrainingBatches
from training.cuda_graph import CapturedFunction
from training.optim.optimizers import set_lr
from training.optim.schedule import context_length, lr_factor
from training.state import TrainingState


class TrainingStep:
    """The step that a run repeats. It depends on the state alone, so a resumed run takes the same steps."""

    def __init__(self, state: TrainingState):
        config, device = state.config, state.runtime.device
        self.state = state
        self.model: nn.Module = state.model
        self.batches = TrainingBatches(
            state.split.train,
            block_size=config.model.block_size,
            batch_size=config.train.batch_size,
            seed=config.train.seed,
            device=device,
        )
        # PyTorch has no norm of sparse gradients, and cannot clip them.
        sparse = set(state.model.sparse_parameters())
        self.dense = [p for p in state.model.parameters() if p not in sparse]
        self.update: Callable[..., None] = self.update_weights
        if device.type == "cuda":
            self.update = CapturedFunction(self.update_weights, state.model)

    def run(self) -> None:
        """Take one step: the next batches, new weights, and the progress."""
        config, progress = self.state.config, self.state.progress
        # Dropout depends on (seed, step) only, hashed into the 32 bits of a CPU seed: no state is saved.
        torch.manual_seed(int(np.random.SeedSequence([config.train.seed, progress.step]).generate_state(1)[0]))
        set_lr(self.state.optimizers, lr_factor(config.optim, progress.step, config.train.max_steps))
        self.update(*self.next_batches())
        progress.step += 1
        progress.windows += config.train.accumulate * config.train.batch_size
        progress.evaluation_due = self.state.is_due(config.train.eval_every_steps)
        if config.optim.average_fraction:
            progress.averaged_steps += 1
            self.state.average.update(progress.averaged_steps)

    def next_batches(self) -> tuple[Tensor, Tensor]:
        """Return inputs and targets (accumulate, B, T); early in a run, windows may be cut into shorter ones."""
        settings, progress = self.state.config.train, self.state.progress
        batches = [self.batches.at(progress.windows + n * settings.batch_size) for n in range(settings.accumulate)]
        shape = (settings.accumulate, -1, context_length(self.state.config, progress.step))
        inputs, targets = (torch.stack(ids).view(shape) for ids in zip(*batches, strict=True))
        return inputs, targets

    def update_weights(self, inputs: Tensor, targets: Tensor) -> None:
        """Change the weights once, given ids (accumulate, B, T). Nothing here waits for the device."""
        state, grad_clip = self.state, self.state.config.optim.grad_clip
        for micro_inputs, micro_targets in zip(inputs, targets, strict=True):
            with state.runtime.autocast():
                logits = self.model(micro_inputs)  # (B, T, V)
            loss = F.cross_entropy(logits.flatten(0, 1), micro_targets.flatten()) / len(inputs)
            loss.backward()
            state.loss_sum += loss.detach()
        state.loss_count += 1
        state.grad_norm.copy_(nn.utils.get_total_norm([p.grad for p in self.dense if p.grad is not None]))
        if grad_clip:
            nn.utils.clip_grads_with_norm_(self.dense, grad_clip, state.grad_norm)
        for optimizer in state.optimizers:
            optimizer.step()
            optimizer.zero_grad()
