"""A run of train.py whose model, text and batches the scripts of the page can have."""

import base64
import dataclasses
import math

import torch
import torch.nn.functional as F
from conftest import ROOT

from data.config import DataConfig
from data.corpus import open_corpus
from model.config import ModelConfig
from page.models import KERNELS as KERNEL_FILES
from training.config import Config, OptimConfig, TrainConfig
from training.runtime import choose_runtime
from training.state import TrainingState

KERNELS = [base64.b64encode((ROOT / "page/compute" / name).read_bytes()).decode() for name in KERNEL_FILES]
SET_WEIGHTS = """const setWeights = (gpt, given) => {
  for (const [name, { weight }] of Object.entries(gpt.parameters)) weight.values.set(given[name]);
};
"""
BATCH, N_STEPS = 3, 3
OPTIM = OptimConfig(lr=0.012, weight_decay=0.1, lm_head_weight_decay=0.3, warmup_steps=2, decay_fraction=0.6)
TEXT = "".join(f"{i} men went to mow, {i} times {i * i}.\n" for i in range(99))


def in_json(model):
    """Return the settings, with the shapes of the layers, and the weights of a model."""
    config = dataclasses.asdict(model.config) | {"layers": [dataclasses.asdict(each) for each in model.config.layers]}
    return {"config": config, "weights": {name: p.flatten().tolist() for name, p in model.state_dict().items()}}


def new_run(folder, *, text=TEXT, **model):
    """Return a run that has not begun, with random weights; the settings of its model may differ."""
    (folder / "text.txt").write_text(text, encoding="utf-8", newline="")
    config = Config(
        model=ModelConfig(**{"n_layer": 2, "n_head": 4, "n_embd": 32, "block_size": 24} | model),
        data=DataConfig(corpus=str(folder / "text.txt")),
        optim=OPTIM,
        train=TrainConfig(max_steps=N_STEPS, batch_size=BATCH, device="cpu", dtype="float32"),
    )
    corpus = open_corpus(config.data, cache=folder / "cache")
    state = TrainingState(config, corpus, choose_runtime("cpu", "float32"))
    with torch.no_grad():
        for p in state.model.parameters():  # many of the first weights are 0
            p.add_(torch.randn_like(p), alpha=0.1)
    return state


@torch.inference_mode()
def held_out_loss(model, ids):
    """Return the loss of a model on the held-out characters that a page evaluates, given all after one before them.

    These are rows of 128 characters, 64 of them at most, spread evenly, in windows that divide them.
    """
    window, (total, count) = 2 ** int(math.log2(min(model.config.block_size, 128))), (0.0, 0)
    n = len(ids) - 1
    n_rows = min(n // 128, 64)
    rows = [torch.arange(128) + i * (n // 128) // n_rows * 128 for i in range(n_rows)]
    for places in rows + [torch.arange(n // 128 * 128, n)] * (n // 128 <= 64):
        for here in places.split(window):
            logits = model(ids[here][None])[0]
            total += float(F.cross_entropy(logits, ids[here + 1], reduction="sum"))
            count += len(here)
    assert count == min(n, 64 * 128)
    return total / count
