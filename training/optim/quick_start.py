"""PyTorch's optimisers without its compiler.

When an optimiser is created, PyTorch imports `torch._dynamo`, only to keep `torch.compile` away from some methods. This
takes about as long as the import of torch. Nothing here compiles an optimiser, so these classes have the methods that
PyTorch wraps. If a version of PyTorch does not wrap them, `unwrap` returns the methods as they are.
"""

from inspect import unwrap

import torch


class Optimizer(torch.optim.Optimizer):
    add_param_group = unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = unwrap(torch.optim.Optimizer.zero_grad)


class AdamW(Optimizer, torch.optim.AdamW):
    step = torch.no_grad()(unwrap(torch.optim.AdamW.step))


class SGD(Optimizer, torch.optim.SGD):
    step = torch.no_grad()(unwrap(torch.optim.SGD.step))
