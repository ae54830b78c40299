"""The variants of a config: what to measure besides the usual shapes."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from experiments.benchmark.figures import Figure
from model.cache import KVCache
from model.config import ModelConfig
from training.settings.config import Config
from training.settings.config_file import build_config, naming, read_settings
from training.sweep.plan import SEED, make_plan


def read_variants(file: Path, overrides: Sequence[str]) -> dict[str, Config]:
    """Return the config of a file or, if it describes a sweep, one config for each variant, by name.

    Raises ConfigError as `train.py` does.
    """
    settings = read_settings(file)
    with naming(file):
        plan = make_plan(settings, overrides)
        if plan is None:
            return {file.name: build_config({k: v for k, v in settings.items() if k != "sweep"}, overrides)}
    variants: dict[str, Config] = {}
    for point in plan.points:
        name = ", ".join(f"{axis}={value}" for axis, value in point.choices.items() if axis != SEED.partition(".")[2])
        variants.setdefault(name or file.name, point.config)
    return variants


def measure_cache(name: str, config: ModelConfig) -> Figure:
    """Measure the memory of one stream's full key-value cache in float32."""
    layers = KVCache(config, 1).layers
    n_bytes = sum(tensor.nbytes for layer in layers for tensor in (layer.keys, layer.values, layer.inputs))
    return Figure(f"cache of a stream, {name}", "kB", [n_bytes / 1e3])


def without_dropout(config: Config) -> ModelConfig:
    return dataclasses.replace(config.model, dropout=0.0)
