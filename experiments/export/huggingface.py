"""Export a model of GPT-2's shape for the library transformers, with a tokenizer of characters."""

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from cli.errors import UserError
from cli.hints import PROJECT, to_paste
from data.files import replace_text, replacing
from model.config import ModelConfig
from training.runs.checkpoint import Checkpoint
from training.trained_model import TrainedModel

# What all such models' files share. Written by hand, because each version of transformers names its own classes.
FILES = Path(__file__).parent / "gpt2_files"
# The settings in which GPT-2s differ, or which have no effect in one. All others have these values, or their defaults.
VARIES = {"n_layer", "n_head", "n_kv_head", "n_embd", "block_size", "head_size", "dropout", "bias", "attention"}
VARIES |= {"ngram_rows", "ngram_dropout"}
VALUES = {"positions": "learned", "norm": "layer", "mlp": "gelu", "qk_norm": False, "logit_softcap": 0.0}
# The library's names of our modules.
NAMES = {"token_embedding": "wte", "position_embedding": "wpe", "norm": "ln_f"}
NAMES_IN_BLOCK = {"attention_norm": "ln_1", "attention.qkv": "attn.c_attn", "attention.proj": "attn.c_proj"}
NAMES_IN_BLOCK |= {"mlp_norm": "ln_2", "mlp.up": "mlp.c_fc", "mlp.proj": "mlp.c_proj"}


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
    weights = renamed(trained.checkpoint.weights)
    with replacing(folder / "model.safetensors") as file:
        file.write(safetensors.torch.save({name: x.contiguous() for name, x in weights.items()}, {"format": "pt"}))


def differences(checkpoint: Checkpoint) -> list[str]:
    """Return the settings in which a model differs from GPT-2's shape."""
    model = checkpoint.config.model
    expected = {field.name: field.default for field in fields(ModelConfig) if field.name not in VARIES} | VALUES
    given = {name: getattr(model, name) for name in expected}
    found = [f"model.{name}={given[name]} instead of {x}" for name, x in expected.items() if given[name] != x]
    shapes = {(layer.n_head, layer.n_kv_head, layer.n_head * layer.head_size) for layer in model.layers}
    if not any(shapes == {(H, H, model.n_embd)} for H, *_ in shapes):
        found.append("model.n_head, model.n_kv_head or model.head_size instead of equal heads that divide model.n_embd")
    return found


def renamed(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a model's weights by the names and in the layout of `GPT2LMHeadModel`; zeros for biases that it lacks."""
    result: dict[str, Tensor] = {}
    for name, value in weights.items():
        module, _, kind = name.rpartition(".")
        if module.startswith("blocks."):
            _, layer, inner = module.split(".", 2)
            its = f"transformer.h.{layer}.{NAMES_IN_BLOCK[inner]}"
        else:
            its = f"transformer.{NAMES[module]}" if module in NAMES else module
        is_linear = its.rpartition(".")[2].startswith("c_")  # its Conv1D, which is transposed
        result[f"{its}.{kind}"] = value.mT if is_linear and kind == "weight" else value
        if is_linear or "norm" in module:
            result.setdefault(f"{its}.bias", torch.zeros(len(value)))
    return result
