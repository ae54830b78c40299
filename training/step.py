"""One training step: batches, gradients, new weights."""

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from data.batches import TrainingBatches
from model.kernels.cuda_graph import CapturedFunction
from model.kernels.dropout import divide_batch
from training.optim.optimizers import set_lr
from training.optim.schedule import context_length, lr_factor
from training.runtime import Runtime
from training.state import TrainingError, TrainingState


class CompilationError(TrainingError):
    """`torch.compile` failed; the step has changed nothing."""


class TrainingStep:
    """A training step that updates the state; it is a pure function of (seed, step) and of the state before it."""

    def __init__(self, state: TrainingState, batches: TrainingBatches, runtime: Runtime):
        self.state, self.batches, self.runtime = state, batches, runtime
        compiles, world = state.config.train.compile, runtime.world
        self.parallel = world.parallel(state.model)
        self.forward = torch.compile(self.parallel, dynamic=False) if compiles else self.parallel
        divide_batch(world.rank)
        # One CUDA graph per step: a GPU finishes small products before Python launches the next ones. With several
        # processes, PyTorch documents this only for NCCL without its error handling, which ends a run that is stuck.
        self.update: Callable[..., None] = self._update
        recomputes = state.config.train.activation_checkpointing  # reads the generator's state, which a graph cannot
        if runtime.device.type == "cuda" and world.size == 1 and not compiles and not recomputes:
            self.update = CapturedFunction(self._update, state.model)

    @property
    def tokens(self) -> int:
        """Characters predicted in a step."""
        return self.state.config.train.accumulate * self.batches.batch_size * self.batches.block_size

    def run(self) -> None:
        config, progress = self.state.config, self.state.progress
        step, accumulate = progress.step, config.train.accumulate
        if config.model.dropout:
            # Dropout depends on (seed, step) only, hashed into the 32 bits of a CPU seed, so no state is saved.
            torch.manual_seed(self._dropout_seed(step))
        set_lr(self.state.optimizers, lr_factor(config.optim, step, config.train.max_steps))
        batches = [self.batches[step * accumulate + micro_step] for micro_step in range(accumulate)]
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
            reason = str(error).splitlines()[0]
            raise CompilationError(
                f"train.compile=true: the model could not be compiled ({reason}); install a C++ compiler such as g++, "
                "or set train.compile=false"
            ) from error
        self.state.gate.record(step)
        progress.step += 1
        if config.optim.average_fraction:
            progress.averaged_steps += 1
            self.state.average.update(progress.averaged_steps)

    def _dropout_seed(self, step: int) -> int:
        entropy = [self.state.config.train.seed, step]
        if self.runtime.device.type != "cpu" or self.state.config.train.compile:
            entropy += [self.runtime.world.rank] * (self.runtime.world.rank > 0)  # or processes would drop the same
        return int(np.random.SeedSequence(entropy).generate_state(1)[0])

    def _update(self, inputs: Tensor, targets: Tensor) -> None:
        """Compute a step for ids (accumulate, B, T). Nothing here waits for the device."""
        state, config = self.state, self.state.config
        losses: list[Tensor] = []
        for micro_inputs, micro_targets in zip(inputs, targets, strict=True):
            is_last = len(losses) == len(inputs) - 1
            with self.runtime.world.gradients(self.parallel, exchange=is_last):
                with self.runtime.autocast():
                    logits = self.forward(micro_inputs)  # (B, T, V)
                loss = F.cross_entropy(logits.flatten(0, 1), micro_targets.flatten()) / len(inputs)
                loss.backward()
            losses.append(loss.detach())
        loss = self.runtime.world.add(torch.stack(losses).sum()) / self.runtime.world.size
        state.gate.check(loss)
        found_inf = state.gate.found_inf
        state.loss_sum += loss.where(found_inf == 0, 0)
        state.loss_count += 1 - found_inf
        if config.optim.grad_clip:
            nn.utils.clip_grad_norm_(state.model.parameters(), config.optim.grad_clip)
        for optimizer in state.optimizers:
            optimizer.found_inf = found_inf  # type: ignore[attr-defined] # read by fused AdamW and by Muon
            optimizer.step()
            optimizer.zero_grad()
