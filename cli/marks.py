"""Marks of settings, which stand beside their types: `dropout: Annotated[float, Mark.RETUNABLE] = 0.0`.

A setting without a mark is a part of a run's identity. In section `model`, it is also a part of the shape that weights
fit, and an exported GPT-2 must have its default.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any, get_type_hints


class Mark(Enum):
    """What is special about a setting."""

    WITHOUT_EFFECT = "it changes neither a weight nor a loss"
    RESOLVED = "its meaning depends on the machine or a file's content; the origin of a run says what it meant"
    RETUNABLE = "weights that were trained with one value also fit another"
    FIXED = "a run that resumes may not change it: its state would not fit, or its best loss would not be comparable"
    ANY_IN_GPT2 = "an exported GPT-2 may have any value of it"


@dataclass(frozen=True)
class InGPT2:
    """A mark with the value that GPT-2 has, if that is not the default."""

    value: Any


def marks(settings: type) -> dict[str, tuple[Any, ...]]:
    """Return what stands beside the type of each setting of a dataclass: its marks and its rule."""
    hints = get_type_hints(settings, include_extras=True)
    return {name: getattr(kind, "__metadata__", ()) for name, kind in hints.items()}
