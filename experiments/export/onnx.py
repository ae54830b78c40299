"""Export a model as two ONNX graphs: a window at once, and one character after another with a key-value cache."""

import json
import logging
import warnings
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from cli.errors import UserError
from cli.optional import optional_library
from data.files import replace_text, replacing
from model.cache import StaticKVCache
from model.compiled_step import Step
from model.gpt import GPT
from training.trained_model import TrainedModel

EXAMPLE = Path(__file__).parent / "onnx_example.py"


class StepWithCache(nn.Module):
    """(ids (1, 1), the cache's tensors) -> logits (1, 1, V) and the cache's new tensors, without those of size 0."""

    def __init__(self, model: GPT):
        super().__init__()
        self.cache = StaticKVCache(model.config, 1)
        self.step = Step(model, self.cache)
        kinds = ("keys", "values", "inputs")
        every_name = ["length", *(f"{kind}_{i}" for i in range(model.config.n_layer) for kind in kinds)]
        self.empty = self.cache.tensors()
        self.names = [name for name, tensor in zip(every_name, self.empty, strict=True) if tensor.numel()]

    def forward(self, ids: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        given = iter(tensors)
        logits = self.step(ids, [next(given) if tensor.numel() else tensor for tensor in self.empty])
        return logits, *(tensor for tensor in self.cache.tensors() if tensor.numel())


def write_onnx(trained: TrainedModel, folder: Path) -> None:
    """Write window.onnx, step.onnx, the vocabulary and an example. Raises UserError if a library is missing."""
    if trained.vocabulary.unit == "byte":
        raise UserError(f"{trained.path} is a model of bytes (data.level=byte); onnx takes models of characters")
    for library in ("onnx", "onnxscript"):
        optional_library(library, "--to onnx", packages="onnx onnxscript")
    config = replace(trained.model.config, attention="explicit")
    model = GPT(config, len(trained.vocabulary)).eval().requires_grad_(False)
    model.load_state_dict(trained.checkpoint.model)
    step, window = StepWithCache(model), torch.zeros(1, config.block_size, dtype=torch.long)
    cache = tuple(tensor.clone() for tensor in step.empty if tensor.numel())
    _export(model, (window,), folder / "window.onnx", ["ids"], ["logits"])
    next_names = [f"next_{name}" for name in step.names]
    _export(step, (window[:, :1], *cache), folder / "step.onnx", ["ids", *step.names], ["logits", *next_names])
    replace_text(folder / "vocabulary.json", json.dumps(list(trained.vocabulary.characters)))
    replace_text(folder / "example.py", EXAMPLE.read_text(encoding="utf-8"))


def _export(module: nn.Module, arguments: tuple, path: Path, inputs: list[str], outputs: list[str]) -> None:
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns of itself
        program = torch.onnx.export(
            module, arguments, input_names=inputs, output_names=outputs, dynamo=True, verbose=False
        )
    assert program is not None, "dynamo=True returns one"
    proto = program.model_proto
    graph = proto.graph
    for each in (*graph.node, *graph.value_info, *graph.input, *graph.output, *graph.initializer, graph):
        del each.metadata_props[:]  # which lines of which files of this machine made it
    with replacing(path) as file:
        file.write(proto.SerializeToString())
