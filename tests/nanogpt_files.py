"""Files in nanoGPT's layout, with random weights."""

import pickle

import torch

C, H, L, T = 12, 3, 2, 10
CHARACTERS = "zyx\n cba"  # not in the order of code points


def nanogpt_checkpoint(*, bias, n_ids=8, prefix="", mask=False):
    torch.manual_seed(1)
    weights = {"transformer.wte.weight": torch.randn(n_ids, C), "transformer.wpe.weight": torch.randn(T, C)}
    for i in range(L):
        for name, rows, columns in (
            *(("attn.c_attn", 3 * C, C), ("attn.c_proj", C, C)),
            *(("mlp.c_fc", 4 * C, C), ("mlp.c_proj", C, 4 * C)),
        ):
            weights[f"transformer.h.{i}.{name}.weight"] = torch.randn(rows, columns) / columns**0.5
            if bias:
                weights[f"transformer.h.{i}.{name}.bias"] = torch.randn(rows)
        if mask:
            weights[f"transformer.h.{i}.attn.bias"] = torch.ones(T, T).tril().view(1, 1, T, T)
    for name in (*(f"h.{i}.ln_{j}" for i in range(L) for j in (1, 2)), "ln_f"):
        weights[f"transformer.{name}.weight"] = torch.randn(C)
        if bias:
            weights[f"transformer.{name}.bias"] = torch.randn(C)
    weights["lm_head.weight"] = weights["transformer.wte.weight"]
    shape = {"n_layer": L, "n_head": H, "n_embd": C, "block_size": T, "bias": bias, "vocab_size": n_ids}
    return {
        "model": {prefix + name: value for name, value in weights.items()},
        "optimizer": {"state": {}, "param_groups": []},
        "model_args": shape | {"dropout": 0.0},
        "iter_num": 2000,
        "best_val_loss": torch.tensor(1.5),
        "config": {"dataset": "shakespeare_char"},
    }


def write_files(folder, checkpoint, itos=None):
    itos = itos or dict(enumerate(CHARACTERS))
    torch.save(checkpoint, folder / "ckpt.pt")
    meta = {"vocab_size": len(itos), "itos": itos, "stoi": {c: i for i, c in itos.items()}}
    (folder / "meta.pkl").write_bytes(pickle.dumps(meta))
