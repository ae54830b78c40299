"""A point of a sweep: one combination of its values, which is one run."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from training.settings.config import Config
from training.sweep.values import VARIANTS


@dataclass(frozen=True)
class Point:
    """One run of a sweep. choices: its value on each axis, by the name of the axis, as text to show."""

    config: Config
    choices: Mapping[str, str]

    @property
    def name(self) -> str:
        """The name of its folder, such as n_head=4,seed=0."""
        parts = [value if axis == VARIANTS else f"{axis}={value}" for axis, value in self.choices.items()]
        return re.sub(r'[/\\:*?"<>|\s]+', "-", ",".join(parts)).strip(".-")
