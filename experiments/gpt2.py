"""GPT-2's shape in this project's settings, and the names of its weights in nanoGPT and Hugging Face transformers."""

SHAPE = {
    "positions": "learned",
    "norm": "layer",
    "mlp": "gelu",
    "qk_norm": False,
    "logit_softcap": 0,
    "temperature": 1.0,
    "conv_width": 1,
    "ngrams": (),
    "score": "scaled_dot",
}
LINEAR_MAPS = {"attention.qkv": "attn.c_attn", "attention.proj": "attn.c_proj"}
LINEAR_MAPS |= {"mlp.up": "mlp.c_fc", "mlp.proj": "mlp.c_proj"}


def module_names(n_layer: int) -> dict[str, str]:
    """Return the name in those libraries of each module of this project."""
    names = {"token_embedding": "transformer.wte", "position_embedding": "transformer.wpe", "norm": "transformer.ln_f"}
    in_block = {"attention_norm": "ln_1", "mlp_norm": "ln_2"} | LINEAR_MAPS
    for i in range(n_layer):
        names |= {f"blocks.{i}.{ours}": f"transformer.h.{i}.{its}" for ours, its in in_block.items()}
    return names | {"lm_head": "lm_head"}
