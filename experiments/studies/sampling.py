"""Characters per second of plain GPT-2 without a cache, and of one and 64 texts with one: python -m experiments.studies.sampling"""

import time

import torch

from model.config import ModelConfig
from model.generate import generate
from model.gpt import GPT

GPT2 = {"positions": "learned", "norm": "layer", "mlp": "gelu", "qk_norm": False, "logit_softcap": 0.0}
PARTS = {"conv_width": 3, "ngrams": (2, 3, 4, 5, 6), "longest_copy": 16}
MODELS = {"4/4/128": ((4, 4, 128), {}), "6/6/384": ((6, 6, 384), {}), "shakespeare.yaml": ((6, 2, 128), PARTS)}
MODELS["without memories and convolution"] = ((6, 2, 128), {})


def without_cache(model: GPT, text: torch.Tensor, length: int) -> None:
    for _ in range(length):
        probabilities = model(text[:, -model.config.block_size :])[:, -1].softmax(-1)
        text = torch.cat((text, probabilities.multinomial(1)), 1)


def with_cache(model: GPT, text: torch.Tensor, length: int, n_texts: int) -> None:
    for _ in generate(model, text, length, streams=range(n_texts)):
        pass


torch.set_num_threads(1)
for name, ((n_layer, n_head, n_embd), parts) in MODELS.items():
    shape = {"n_layer": n_layer, "n_head": n_head, "n_embd": n_embd, "block_size": 256}
    plain, ours = (GPT(ModelConfig(**shape, **options), 65).eval() for options in (GPT2, parts))
    text, best = torch.randint(65, (1, 256)), {}
    for _ in range(7):
        for n, sampled in (
            (64, lambda: without_cache(plain, text, 64)),
            (256, lambda: with_cache(ours, text, 256, 1)),
            (128 * 64, lambda: with_cache(ours, text, 128, 64)),
        ):
            start_s = time.perf_counter()
            with torch.inference_mode():
                sampled()
            best[n] = max(best.get(n, 0), n / (time.perf_counter() - start_s))
    print(name, *(f"{speed:,.0f}" for speed in best.values()))
