"""One step of training: batches in, gradients, new weights."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from data.batches import TrainingBatches
from training.optimizers import set_lr
from training.runtime import Runtime
from training.state import TrainingState


class TrainingStep:
    """What a step does to the state; a pure function of (seed, step) and of the weights before it."""

    def __init__(self, state: TrainingState, batches: TrainingBatches, runtime: Runtime):
        self.state, self.batches, self.runtime = state, batches, runtime
        self.forward = torch.compile(state.model, dynamic=False) if state.config.train.compile else state.model

    @property
    def tokens(self) -> int:
        """Characters predicted in a step."""
        return self.state.config.train.accumulate * self.batches.batch_size * self.batches.block_size

    def run(self) -> None:
        state, config = self.state, self.state.config
        step, accumulate = state.progress.step, config.train.accumulate
        if config.model.dropout:
            # Nothing to save: dropout, too, follows from (seed, step), hashed into the 32 bits that a CPU can use.
            torch.manual_seed(int(np.random.SeedSequence((config.train.seed, step)).generate_state(1)[0]))
        set_lr(state.optimizers, config.optim.lr_factor(step, config.train.max_steps))
        for micro_step in range(accumulate):
            inputs, targets = map(self.runtime.to_device, self.batches[step * accumulate + micro_step])  # (B, T) each
            with self.runtime.autocast():
                logits = self.forward(inputs)  # (B, T, V)
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten()) / accumulate
            loss.backward()
            state.loss_sum += loss.detach()
        if config.optim.grad_clip:
            nn.utils.clip_grad_norm_(state.model.parameters(), config.optim.grad_clip)
        for optimizer in state.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        state.progress.step += 1
        state.progress.loss_count += 1
