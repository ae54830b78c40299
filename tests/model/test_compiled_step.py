"""The compiled sampling step against the model itself."""

import shutil

import pytest
import torch

from model.cache import KVCache
from model.compiled_step import CompiledStep, compile_step
from model.config import ModelConfig
from model.generate import Sampling, generate
from model.gpt import GPT, store_by_columns

V, B, T = 11, 2, 24
SHAPES = {
    "modern": {"n_layer": 1, "n_head": 2, "n_embd": 32, "conv_width": 3, "block_size": T},
    "with biases and everything else": {
        "n_layer": 1,
        "n_head": (4,),
        "n_kv_head": 2,
        "n_embd": 24,
        "block_size": T,
        "bias": True,
        "norm": "layer",
        "positions": "alibi",
        "score": "gaussian",
        "mlp": "swiglu",
        "logit_softcap": 0,
    },
    "GPT-2": {
        "n_layer": 2,
        "n_head": 1,
        "n_embd": 16,
        "block_size": T,
        "positions": "learned",
        "norm": "layer",
        "mlp": "gelu",
        "qk_norm": False,
    },
}


def random_model(config, seed):
    torch.manual_seed(seed)
    model = GPT(config, V).eval().requires_grad_(False)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler")
@pytest.mark.parametrize("settings", SHAPES.values(), ids=SHAPES)
def test_one_package_gives_the_logits_and_the_text_of_every_model_of_its_shape(settings, tmp_path):
    config = ModelConfig(**settings)
    compile_step(config, V, B, T, tmp_path / "step.pt2")
    for seed in (0, 1):
        model = random_model(config, seed)
        step, cache = CompiledStep(tmp_path / "step.pt2", model, B, T), KVCache(config, B)
        ids = torch.randint(V, (B, T))
        with torch.inference_mode():
            for t in range(T):
                here = ids[:, t : t + 1]
                torch.testing.assert_close(step(here), model(here, cache), atol=1e-5, rtol=1e-5)
        texts = [
            torch.stack(list(generate(model, ids[:, :3], 3 * T, sampling=Sampling(top_k=5), compiled=compiled)))
            for compiled in (None, step)
        ]
        assert torch.equal(*texts)


def test_weights_stored_by_columns_are_the_same_weights_and_predict_the_same():
    config = ModelConfig(**SHAPES["modern"])
    model, ids = random_model(config, 0), torch.randint(V, (B, T))
    before, weights = model(ids), {name: p.clone() for name, p in model.named_parameters()}
    store_by_columns(model)
    assert model.blocks[0].mlp.up.weight.stride() == (1, 4 * 32)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, weights[name])
    torch.testing.assert_close(model(ids), before)
