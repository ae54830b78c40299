"""The variants of a config: what to measure besides the usual shapes."""

from collections.abc import Sequence
from pathlib import Path

from training.settings.config import Config
from training.settings.config_file import build_config, naming, read_settings
from training.sweep.plan import SEED, make_plan
from training.sweep.values import VARIANTS


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
        choices = {axis: value for axis, value in point.choices.items() if axis != SEED.partition(".")[2]}
        name = ", ".join(value if axis == VARIANTS else f"{axis}={value}" for axis, value in choices.items())
        variants.setdefault(name or file.name, point.config)
    return variants
