"""A step of sampling as machine code: `GPT.forward` of one character per text, compiled ahead of time."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from model.cache import StaticKVCache
from model.config import ModelConfig
from model.gpt import GPT, store_by_columns


class Step(nn.Module):
    """A GPT and its cache as a function of tensors: (ids (B, 1), the cache's tensors) -> logits (B, 1, V)."""

    def __init__(self, model: GPT, cache: StaticKVCache):
        super().__init__()
        self.model, self.cache = model, cache

    def forward(self, ids: Tensor, tensors: Sequence[Tensor]) -> Tensor:
        self.cache.set_tensors(tensors)
        return self.model(ids, self.cache)


def compile_step(config: ModelConfig, vocab_size: int, batch_size: int, size: int, package: Path) -> None:
    """Compile the step of all models of this shape, for batch_size texts of up to `size` characters.

    The package, a file whose name must end in .pt2, contains no weights. Compiling takes 10 to 45 s.
    """
    with torch.random.fork_rng(devices=[]):
        # The compiler fuses the operations of the definition; a call of a fused kernel takes longer.
        model = GPT(replace(config, attention="explicit"), vocab_size).eval().requires_grad_(False)
        for parameter in model.parameters():
            parameter.normal_()  # a tensor of equal numbers would become part of the code
    store_by_columns(model)
    cache = StaticKVCache(config, batch_size, size=size)
    inputs = (torch.zeros(batch_size, 1, dtype=torch.long), cache.tensors())
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # PyTorch warns of itself
        program = torch.export.export(Step(model, cache), inputs, strict=False)
        # No weight becomes part of the code, not even a short one.
        settings = {"aot_inductor.package_constants_in_so": False, "always_keep_tensor_constants": True}
        torch._inductor.aoti_compile_and_package(program, package_path=str(package), inductor_configs=settings)


class CompiledStep:
    """A package of `compile_step` with the weights of a model: a faster `model(ids (B, 1), self.cache)`.

    It is machine code: load no package from a place where others can write. Raises RuntimeError if it is damaged.
    """

    def __init__(self, package: Path, model: GPT, batch_size: int, size: int):
        store_by_columns(model)
        self.cache = StaticKVCache(model.config, batch_size, size=size)
        step = Step(model, self.cache)
        # `torch._inductor.aoti_load_package` makes the same object, but imports PyTorch's compilers: seconds.
        self.code = torch._C._aoti.AOTIModelPackageLoader(str(package), "model", True, 1, -1)
        tensors = dict(step.named_parameters()) | dict(step.named_buffers())
        self.weights = {name: tensors[name].detach() for name in self.code.get_constant_fqns()}  # the code reads these
        use_inactive, check_all, keep_no_copies = False, True, True
        self.code.load_constants(self.weights, use_inactive, check_all, keep_no_copies)

    def __call__(self, ids: Tensor) -> Tensor:
        """Return logits (B, 1, V) for ids (B, 1), which continue the positions in the cache."""
        return self.code.boxed_run([ids.contiguous(), *self.cache.tensors()])[0]
