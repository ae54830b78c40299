"""The optimisers of a config, and their learning rates step by step."""

import torch
from torch import Tensor
from torch.optim import AdamW, Optimizer

from model.gpt import GPT
from training.config import OptimConfig
from training.muon import Muon


def make_optimizers(model: GPT, config: OptimConfig, *, dtype: torch.dtype = torch.bfloat16) -> list[Optimizer]:
    """AdamW for all parameters or, with `optim.name: muon`, Muon for the blocks' matrices and AdamW for the rest.

    dtype: of Muon's products. Every group carries `peak_lr`, its highest learning rate; see `set_lr`.
    """
    matrices = [p for block in model.blocks for p in block.parameters() if p.ndim == 2]
    in_blocks = set(map(id, matrices))
    rest = [p for p in model.parameters() if id(p) not in in_blocks]
    on_gpu = rest[0].device.type == "cuda"
    betas = (config.beta1, config.beta2)
    optimizers: list[Optimizer] = []
    groups = [{"params": rest, "weight_decay": 0.0}]
    if config.name == "muon":
        optimizers.append(
            Muon(
                matrices,
                lr=config.muon_lr,
                momentum=config.muon_momentum,
                weight_decay=config.weight_decay,
                dtype=dtype,
            )
        )
    else:
        groups.append({"params": matrices, "weight_decay": config.weight_decay})
    optimizers.append(AdamW(groups, lr=config.lr, betas=betas, fused=True, capturable=on_gpu))
    for group in (g for o in optimizers for g in o.param_groups):
        group["peak_lr"] = group["lr"]
        if on_gpu:  # where a captured step can read it
            group["lr"] = torch.tensor(group["lr"], device=rest[0].device)
    return optimizers


def set_lr(optimizers: list[Optimizer], factor: float) -> None:
    """Every group's learning rate as this share of its highest."""
    for group in (g for o in optimizers for g in o.param_groups):
        lr = factor * group["peak_lr"]
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr
