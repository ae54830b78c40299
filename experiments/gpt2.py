"""GPT-2's shape in this project's settings, and the names of its weights in nanoGPT and Hugging Face transformers."""

from typing import Any

from cli.marks import InGPT2, Mark, marks
from model.config import ModelConfig

LINEAR_MAPS = {"attention.qkv": "attn.c_attn", "attention.proj": "attn.c_proj"}
LINEAR_MAPS |= {"mlp.up": "mlp.c_fc", "mlp.proj": "mlp.c_proj"}


def module_names(n_layer: int) -> dict[str, str]:
    """Return the name in those libraries of each module of this project."""
    names = {"token_embedding": "transformer.wte", "position_embedding": "transformer.wpe", "norm": "transformer.ln_f"}
    in_block = {"attention_norm": "ln_1", "mlp_norm": "ln_2"} | LINEAR_MAPS
    for i in range(n_layer):
        names |= {f"blocks.{i}.{ours}": f"transformer.h.{i}.{its}" for ours, its in in_block.items()}
    return names | {"lm_head": "lm_head"}


def shape() -> dict[str, Any]:
    """Return the settings of a model in which every GPT-2 is the same: the value beside each, or else its default."""
    default = ModelConfig()
    return {
        name: next((mark.value for mark in found if isinstance(mark, InGPT2)), getattr(default, name))
        for name, found in marks(ModelConfig).items()
        if Mark.ANY_IN_GPT2 not in found
    }
