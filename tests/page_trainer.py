"""A run of train.py whose model, text and batches the scripts of the page can have."""

import base64
import dataclasses

import torch
from conftest import ROOT

from data.config import DataConfig
from data.corpus import open_corpus
from model.config import ModelConfig
from training.config import Config, OptimConfig, TrainConfig
from training.runtime import choose_runtime
from training.state import TrainingState

PLAYGROUND = ROOT / "experiments/playground"
KERNELS = [base64.b64encode((PLAYGROUND / name).read_bytes()).decode() for name in ("kernels_fma.wasm", "kernels.wasm")]
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
