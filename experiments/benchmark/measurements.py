"""What the benchmark measures: the usual shapes, or the variants of a config.

Each measurement is a name, which begins with that of its part, a function that returns figures, and its arguments.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from experiments.benchmark.commands import ROOT, measure_encoding, measure_startup
from experiments.benchmark.models import (
    measure_against_plain,
    measure_cache,
    measure_context,
    measure_sampling,
    measure_training,
)
from training.config import Config
from training.config_file import build_config, load_config, naming, read_settings, without_sweep
from training.sweep.plan import SEED, make_plan
from training.sweep.values import labelled

PARTS = ("training", "sampling", "memory", "encoding", "start-up")
FLOAT32 = ["train.dtype=float32", "model.attention=fused"]  # the usual arithmetic of these shapes on a CPU
SHAPES = {  # name: (config file, overrides, part of --quick)
    "GPT-2 layers 6/6/384": ("shakespeare_gpt2.yaml", [], True),
    "GPT-2 layers 6/6/384, float32": ("shakespeare_gpt2.yaml", FLOAT32, False),
    "GPT-2 layers 4/4/128": ("shakespeare_gpt2_cpu.yaml", [], True),
    "GPT-2 layers 4/4/128, float32": ("shakespeare_gpt2_cpu.yaml", FLOAT32, True),
    "shakespeare.yaml": ("shakespeare.yaml", [], True),
}
SAMPLED = {  # name: (config file, overrides); both GPT-2 shapes have the same context length
    "GPT-2 layers 4/4/128": ("shakespeare_gpt2_cpu.yaml", ["model.block_size=256"]),
    "GPT-2 layers 6/6/384": ("shakespeare_gpt2.yaml", []),
    "shakespeare.yaml": ("shakespeare.yaml", []),
}
ALPHABETS = {"ASCII": "", "with other letters": "äöüß\n"}
Measurement = tuple[Any, ...]


def list_measurements(
    variants: Mapping[str, Config],
    device: torch.device,
    products: Mapping[str, float],
    repeats: int,
    megabytes: int,
    *,
    quick: bool,
) -> Iterator[Measurement]:
    """Yield the measurements of training and sampling for these configs or, if there are none, the usual ones.

    variants: see `read_variants`. products: GFLOP/s of matrix products by dtype. megabytes: size of the encoded text.
    """
    for name, config in variants.items():
        yield _training(name, config, products, repeats, quick=quick)
        for streams in (1, 64):
            yield f"sampling {name}", measure_sampling, name, config.model, streams, repeats, device
        yield f"sampling {name}", measure_cache, name, config.model
    if variants:
        return
    for name, (file, overrides, is_quick) in SHAPES.items():
        is_repeated = overrides == FLOAT32 and "bfloat16" not in products  # the row before it is in float32 already
        if (is_quick or not quick) and not is_repeated:
            config = load_config(ROOT / "configs" / file, [*overrides, f"train.device={device}"])
            yield _training(name, config, products, repeats, quick=quick)
    for name, (file, overrides) in SAMPLED.items():
        model = load_config(ROOT / "configs" / file, overrides).model
        for streams in (1,) if quick else (1, 64):
            yield f"sampling {name}", measure_sampling, name, model, streams, repeats, device
        if device.type == "cpu" and not (quick and model.n_embd > 128):
            yield f"sampling {name}", measure_against_plain, name, model, max(1, repeats // 2), quick
    for form in ("fused", "auto"):
        for block_size in (256, 8192) if quick else (256, 1024, 4096, 8192):
            yield f"memory {block_size} {form}", measure_context, block_size, form, str(device)
    for name, alphabet in ALPHABETS.items():
        yield f"encoding {name}", measure_encoding, name, alphabet, megabytes, repeats
    yield "start-up", measure_startup, 1 if quick else repeats


def _training(name: str, config: Config, products: Mapping[str, float], repeats: int, *, quick: bool) -> Measurement:
    is_slow = config.model.n_embd > 128 and config.train.device == "cpu"
    if is_slow and quick:  # a step of the whole batch takes up to 15 s
        config = dataclasses.replace(config, train=dataclasses.replace(config.train, batch_size=16))
    n = (1 if quick else 3) if is_slow else (10 if quick else 70)
    return f"training {name}", measure_training, name, config, products, n


def read_variants(file: Path, overrides: Sequence[str]) -> dict[str, Config]:
    """Return the config of a file or, if it describes a sweep, one config for each variant, by name.

    Raises ConfigError as `train.py` does.
    """
    settings = read_settings(file)
    with naming(file):
        plan = make_plan(settings, overrides)
        if plan is None:
            return {file.name: build_config(without_sweep(settings), overrides)}
    variants: dict[str, Config] = {}
    for point in plan.points:
        choices = {axis: value for axis, value in point.choices.items() if axis != SEED.partition(".")[2]}
        variants.setdefault(labelled(choices) or file.name, point.config)
    return variants
