"""Export a model of GPT-2's shape for the library transformers, with a tokenizer of characters."""

import json
from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from cli.errors import UserError
from cli.hints import PROJECT, to_paste
from data.files import replace_text, replacing
from experiments import gpt2
from training.runs.checkpoint import Checkpoint
from training.trained_model import TrainedModel

# What all such models' files share. Written by hand, because each version of transformers names its own classes.
FILES = Path(__file__).parent / "gpt2_files"


def write_huggingface(trained: TrainedModel, folder: Path) -> None:
    """Write the files of a `GPT2LMHeadModel` and a tokenizer. Raises UserError if the model has another shape."""
    if others := differences(trained.checkpoint):
        train = to_paste("train.py", "--config", PROJECT / "configs/shakespeare_gpt2.yaml")
        raise UserError(
            f"{trained.path} does not have GPT-2's shape, which huggingface needs: {', '.join(others)}; use {train}"
        )
    config, characters = trained.model.config, trained.vocabulary.characters
    files = {file.name: json.loads(file.read_text(encoding="utf-8")) for file in FILES.glob("*.json")}
    files["config.json"] |= {
        "vocab_size": len(characters),
        "n_positions": config.block_size,
        "n_embd": config.n_embd,
        "n_layer": config.n_layer,
        "n_head": config.layers[0].n_head,
        **dict.fromkeys(("embd_pdrop", "attn_pdrop", "resid_pdrop"), config.dropout),
    }
    files["tokenizer.json"]["model"]["vocab"] = {c: i for i, c in enumerate(characters)}
    files["tokenizer_config.json"]["model_max_length"] = config.block_size
    for name, content in files.items():
        replace_text(folder / name, json.dumps(content, indent=2))
    weights = renamed(trained.checkpoint.weights, config.n_layer)
    with replacing(folder / "model.safetensors") as file:
        file.write(safetensors.torch.save({name: x.contiguous() for name, x in weights.items()}, {"format": "pt"}))


def differences(checkpoint: Checkpoint) -> list[str]:
    """Return the settings in which a model differs from GPT-2's shape."""
    config = checkpoint.config
    given = {name: getattr(config.model, name) for name in gpt2.shape()}
    found = [f"model.{n}={given[n]} instead of {value}" for n, value in gpt2.shape().items() if given[n] != value]
    shapes = {(layer.n_head, layer.n_kv_head, layer.n_head * layer.head_size) for layer in config.model.layers}
    if not any(shapes == {(H, H, config.model.n_embd)} for H, *_ in shapes):
        found.append("model.n_head, model.n_kv_head or model.head_size instead of equal heads that divide model.n_embd")
    return found


def renamed(weights: Mapping[str, Tensor], n_layer: int) -> dict[str, Tensor]:
    """Return a model's weights by the names and in the layout of `GPT2LMHeadModel`; zeros for biases that it lacks."""
    names = gpt2.module_names(n_layer)
    with_bias = {its: ours for ours, its in names.items() if "embedding" not in ours and ours != "lm_head"}
    result = {f"{its}.bias": torch.zeros(len(weights[f"{ours}.weight"])) for its, ours in with_bias.items()}
    for name, value in weights.items():
        module, _, kind = name.rpartition(".")
        is_transposed = kind == "weight" and ".".join(module.split(".")[2:]) in gpt2.LINEAR_MAPS  # its Conv1D
        result[f"{names[module]}.{kind}"] = value.mT if is_transposed else value
    return result
