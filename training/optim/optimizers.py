"""What turns gradients into new weights: the optimisers of a config, and the average of the weights.

A new optimiser is a `torch.optim.Optimizer`, best one of `quick_start`, with a branch in `make_optimizers` and a line
in `REMEMBERED`. It changes weights and what it remembers in place, because a CUDA graph freezes the addresses of
tensors. On a GPU, the graph also freezes every value of a group but the learning rate, which is a tensor there.
"""

import copy
from collections.abc import Callable

import torch
from torch import Tensor
from torch.optim import Optimizer

from model.gpt import GPT
from training.config import OptimConfig
from training.optim.muon import Muon
from training.optim.quick_start import SGD, AdamW

BETA1 = 0.9  # of AdamW
NGRAM_LR = 0.2  # peak learning rate of the rows of `model.ngrams`, for each character of a step

# What each optimiser remembers of a parameter p after a step: tensors of these shapes and types.
REMEMBERED: dict[type[Optimizer], Callable[[Tensor], dict[str, Tensor]]] = {
    AdamW: lambda p: {"step": torch.zeros((), dtype=torch.float32), "exp_avg": p, "exp_avg_sq": p},
    SGD: lambda _: {},
    Muon: lambda p: {"momentum_buffer": p},
}


def make_optimizers(
    model: GPT, config: OptimConfig, *, characters: int = 1, dtype: torch.dtype = torch.bfloat16
) -> list[Optimizer]:
    """Return AdamW or, with `optim.name: muon`, Muon for the blocks' matrices and AdamW for the other parameters.

    Sparse parameters have SGD; see `GPT.sparse_parameters`.

    Weight decay applies to the blocks' matrices and, with its own strength, to the language-model head.

    dtype: of Muon's matrix products. Every group stores its peak learning rate as `peak_lr`; see `set_lr`.
    """
    matrices = [p for block in model.blocks for p in block.parameters() if p.ndim == 2]
    head = model.lm_head.weight
    sparse = model.sparse_parameters()
    apart = {*matrices, head, *sparse}
    rest = [p for p in model.parameters() if p not in apart]
    on_gpu = rest[0].device.type == "cuda"
    optimizers: list[Optimizer] = []
    groups = [
        {"params": rest, "weight_decay": 0.0},
        {"params": [head], "weight_decay": config.lm_head_weight_decay},
    ]
    if config.name == "muon" and matrices:
        optimizers.append(Muon(matrices, lr=config.muon_lr, weight_decay=config.weight_decay, dtype=dtype))
    else:
        groups.append({"params": matrices, "weight_decay": config.weight_decay})
    optimizers.append(AdamW(groups, lr=config.lr, betas=(BETA1, config.beta2), fused=True, capturable=on_gpu))
    if sparse:  # AdamW would move a row that was seen once as far as one that was seen a thousand times
        optimizers.append(SGD(sparse, lr=NGRAM_LR * characters, fused=on_gpu))
    for group in (g for o in optimizers for g in o.param_groups):
        group["peak_lr"] = group["lr"]
        if on_gpu:  # in device memory, where a captured step reads it
            group["lr"] = torch.tensor(group["lr"], device=rest[0].device)
    return optimizers


def set_lr(optimizers: list[Optimizer], factor: float) -> None:
    """Set every group's learning rate to this fraction of its peak."""
    for group in (g for o in optimizers for g in o.param_groups):
        lr = factor * group["peak_lr"]
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr


class WeightAverage:
    """A second model, whose weights are averages of those that training produces (Polyak and Juditsky, 1992).

    The mean age of the averaged weights is `fraction` of the run so far: with 0.1, after 1,000 steps, 100 steps. After
    step t, the weights of step s count about in proportion to s^(1 / fraction - 2) (the power function average of
    Karras et al., 2024, section 3.1). At any time, an average predicts about like a model whose learning rate has
    fallen, and overfits less.

    trained: the model that training changes. model: a copy with the averages or, if fraction is 0, the same one. names:
    of the parameters that are averaged; both models share the others, which are sparse, and all buffers.
    """

    def __init__(self, trained: GPT, fraction: float):
        self.trained, self.model, self.fraction = trained, trained, fraction
        self.names: list[str] = []
        if fraction:
            sparse = trained.sparse_parameters()
            self.model = copy.deepcopy(trained, {id(x): x for x in (*sparse, *trained.buffers())})  # without these
            self.names = [name for name, p in trained.named_parameters() if p not in {*sparse}]

    @torch.no_grad()
    def update(self, n_steps: int) -> None:
        """Add the present weights to the average. n_steps: how many steps it then has, 1, 2, ..."""
        share = 1 / (1 + self.fraction / (1 - self.fraction) * (n_steps - 1))  # 1 for the first weights
        averages: list[Tensor] = [self.model.get_parameter(name) for name in self.names]
        weights: list[Tensor] = [self.trained.get_parameter(name) for name in self.names]
        torch._foreach_lerp_(averages, weights, share)
