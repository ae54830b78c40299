"""Export a model of GPT-2's shape for the library transformers, with a tokenizer of characters."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cli.errors import UserError
from cli.hints import PROJECT, to_paste
from cli.optional import optional_library
from data.files import replace_text
from data.vocabulary import Vocabulary
from experiments import gpt2
from training.runs.checkpoint import Checkpoint
from training.trained_model import TrainedModel

PAD = "<|pad|>"  # the token that fills up the shorter texts of a batch; its id follows the characters'
PAD_LOGIT = -100.0  # so its probability is 0
# Written by hand, because each version of transformers names its own classes; GPT2LMHeadModel adds token_type_ids up.
TOKENIZER = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "pad_token": PAD,
    "padding_side": "left",
    "model_input_names": ["input_ids", "attention_mask"],
    "clean_up_tokenization_spaces": False,
}


def write_huggingface(trained: TrainedModel, folder: Path) -> None:
    """Write a `GPT2LMHeadModel` with the same logits, and a tokenizer, to a folder.

    Raises UserError if the model has another shape than GPT-2, or a library is missing.
    """
    if others := differences(trained.checkpoint):
        train = to_paste("train.py", "--config", PROJECT / "configs/shakespeare_gpt2.yaml")
        raise UserError(
            f"{trained.path} does not have GPT-2's shape, which huggingface needs: {', '.join(others)}; use {train}"
        )
    transformers = optional_library("transformers", "--to huggingface")
    tokenizers = optional_library("tokenizers", "--to huggingface")
    config, n_characters = trained.model.config, len(trained.vocabulary)
    its_model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=n_characters + 1,
            n_positions=config.block_size,
            n_embd=config.n_embd,
            n_layer=config.n_layer,
            n_head=config.layers[0].n_head,
            activation_function="gelu",
            tie_word_embeddings=False,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=n_characters,
            **dict.fromkeys(("embd_pdrop", "attn_pdrop", "resid_pdrop"), config.dropout),
        )
    )
    # Our model may have no biases; those of a new model are zero.
    biases = {name: value for name, value in its_model.state_dict().items() if name.endswith("bias")}
    its_model.load_state_dict(with_padding(biases | renamed(trained.checkpoint.weights, config.n_layer)))
    its_model.save_pretrained(folder)
    make_tokenizer(tokenizers, trained.vocabulary).save(str(folder / "tokenizer.json"))
    settings = TOKENIZER | {"model_max_length": config.block_size}
    replace_text(folder / "tokenizer_config.json", json.dumps(settings, indent=2))


def make_tokenizer(tokenizers: Any, vocabulary: Vocabulary) -> Any:
    """Return a tokenizer of the library `tokenizers` with one token for each character, and `PAD`."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({c: i for i, c in enumerate(vocabulary.characters)}))
    each_character = tokenizers.Regex(r"[\s\S]")
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split(each_character, "isolated")
    tokenizer.decoder = tokenizers.decoders.Fuse()
    tokenizer.add_special_tokens([PAD])
    return tokenizer


def with_padding(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return weights of `GPT2LMHeadModel` with one more token, whose logit is always `PAD_LOGIT`.

    The last norm computes scale x + bias, where x (C,) sums to 0. If it computes x + 1 instead, a row of the output
    layer gives row x + sum(row), and any constant can be its sum, because shifting a row does not change row x.
    """
    embedding, head = weights["transformer.wte.weight"], weights["lm_head.weight"]  # (V, C) each
    scale, bias = weights["transformer.ln_f.weight"], weights["transformer.ln_f.bias"]  # (C,)
    scaled, constants = head * scale, head @ bias  # (V, C), (V,); the logits are scaled x + constants
    rows = scaled + ((constants - scaled.sum(1)) / len(scale))[:, None]
    return weights | {
        "transformer.wte.weight": torch.cat([embedding, torch.zeros_like(embedding[:1])]),
        "transformer.ln_f.weight": torch.ones_like(scale),
        "transformer.ln_f.bias": torch.ones_like(bias),
        "lm_head.weight": torch.cat([rows, torch.full_like(rows[:1], PAD_LOGIT / len(scale))]),
    }


def differences(checkpoint: Checkpoint) -> list[str]:
    """Return the settings in which a model differs from GPT-2's shape."""
    config = checkpoint.config
    found = [
        f"model.{name}={getattr(config.model, name)} instead of {value}"
        for name, value in gpt2.SHAPE.items()
        if getattr(config.model, name) != value
    ]
    if config.data.level != "character":
        found.append(f"data.level={config.data.level} instead of character")
    shapes = {(layer.n_head, layer.n_kv_head, layer.n_head * layer.head_size) for layer in config.model.layers}
    if shapes != {(H := config.model.layers[0].n_head, H, config.model.n_embd)}:
        found.append("model.n_head, model.n_kv_head or model.head_size instead of equal heads that divide model.n_embd")
    return found


def renamed(weights: Mapping[str, Tensor], n_layer: int) -> dict[str, Tensor]:
    """Return a model's weights by the names and in the layout of `GPT2LMHeadModel`."""
    names, result = gpt2.module_names(n_layer), {}
    for name, value in weights.items():
        module, _, kind = name.rpartition(".")
        is_transposed = kind == "weight" and ".".join(module.split(".")[2:]) in gpt2.LINEAR_MAPS  # its Conv1D
        result[f"{names[module]}.{kind}"] = value.mT if is_transposed else value
    return result
