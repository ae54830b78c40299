"""GPT-2's shape in this project's settings, and the names of its weights in nanoGPT and Hugging Face transformers."""

from dataclasses import fields
from typing import Any

from model.config import ModelConfig

LINEAR_MAPS = {"attention.qkv": "attn.c_attn", "attention.proj": "attn.c_proj"}
LINEAR_MAPS |= {"mlp.up": "mlp.c_fc", "mlp.proj": "mlp.c_proj"}
# The settings in which GPT-2s differ, or which have no effect in one. All others have these values, or their defaults.
VARIES = {"n_layer", "n_head", "n_kv_head", "n_embd", "block_size", "head_size", "dropout", "bias", "attention"}
VARIES |= {"ngram_rows", "ngram_dropout"}
VALUES = {"positions": "learned", "norm": "layer", "mlp": "gelu", "qk_norm": False, "logit_softcap": 0.0}


def module_names(n_layer: int) -> dict[str, str]:
    """Return the name in those libraries of each module of this project."""
    names = {"token_embedding": "transformer.wte", "position_embedding": "transformer.wpe", "norm": "transformer.ln_f"}
    in_block = {"attention_norm": "ln_1", "mlp_norm": "ln_2"} | LINEAR_MAPS
    for i in range(n_layer):
        names |= {f"blocks.{i}.{ours}": f"transformer.h.{i}.{its}" for ours, its in in_block.items()}
    return names | {"lm_head": "lm_head"}


def shape() -> dict[str, Any]:
    """Return the settings of a model in which every GPT-2 is the same."""
    return {field.name: field.default for field in fields(ModelConfig) if field.name not in VARIES} | VALUES
