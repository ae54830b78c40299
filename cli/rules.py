"""The rules and marks of settings: ranges of numbers, names to choose from, names of folders, and what is special."""

import math
import re
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, get_args, get_type_hints

from cli.errors import UserError

# Names with special characters, names of Windows' devices and of the project's files, in any case of letters.
NO_FOLDER = re.compile(
    r'(?is)|[. ].*|.*[. ]|.*[/\\:*?"<>|\x00-\x1f].*'
    r"|(aux|con((in|out)\$)?|nul|prn|(com|lpt)[\d¹²³]) *(\..*)?"
    r"|lock|checkpoints|.*\.(csv|damaged|html|jsonl|md|part|safetensors|svg|txt|yaml)"
)


@dataclass(frozen=True, kw_only=True)
class Within:
    """The numbers within limits. As text, it is a rule such as "at least 0 and below 1"."""

    at_least: float = -math.inf
    above: float = -math.inf
    at_most: float = math.inf
    below: float = math.inf

    def __contains__(self, number: float) -> bool:
        return self.at_least <= number <= self.at_most and self.above < number < self.below

    def __str__(self) -> str:
        return " and ".join(f"{name.replace('_', ' ')} {x:,}" for name, x in vars(self).items() if math.isfinite(x))


# float32 holds the product of any two of the settings, and their product with a weight.
MOST = 1_000_000_000_000

# Types with a rule, which `check_rules` applies. The upper limits keep typing errors from running for years.
Size = Annotated[int, Within(at_least=1, at_most=1_000_000)]
Count = Annotated[int, Within(at_least=1, at_most=MOST)]
CountOrNone = Annotated[int, Within(at_least=0, at_most=MOST)]
Positive = Annotated[float, Within(above=0, at_most=MOST)]
NotNegative = Annotated[float, Within(at_least=0, at_most=MOST)]
BelowOne = Annotated[float, Within(at_least=0, below=1)]
Fraction = Annotated[float, Within(at_least=0, at_most=1)]


class Mark(Enum):
    """What is special about a setting, beside its type: `dropout: Annotated[float, Mark.RETUNABLE] = 0.0`.

    A setting without a mark is a part of a run's identity and, in section `model`, of the shape that weights fit.
    """

    WITHOUT_EFFECT = "it changes neither a weight nor a loss"
    RESOLVED = "its meaning depends on the machine or a file's content; the origin of a run says what it meant"
    RETUNABLE = "weights that were trained with one value also fit another"
    FIXED = "a run that resumes may not change it: its state would not fit, or its best loss would not be comparable"


def check_rules(section: str, settings: Any) -> None:
    """Raise ValueError if a setting is not one of the values that its type names, or breaks the rule of its type.

    section: "" if the settings are in none.
    """
    for name, kind in get_type_hints(type(settings), include_extras=True).items():
        key, value, rules = f"{section}.{name}" if section else name, getattr(settings, name), rules_of(kind)
        names = [rule for rule in rules if isinstance(rule, str)]
        limits = [rule for rule in rules if isinstance(rule, Within)]
        if isinstance(value, str) and names and value not in names:
            raise ValueError(f"{key}={value} must be one of {', '.join(names)}")
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, (int, float)) and limits and number not in limits[0]:
                raise ValueError(f"{key}={number} must be {limits[0]}")


def rules_of(kind: Any) -> list[Any]:
    """Return the names and the limits, once each, of a type such as `Literal["adamw", "muon"]` or `Positive | None`."""
    own = [kind] if isinstance(kind, (str, Within)) else [rule for part in get_args(kind) for rule in rules_of(part)]
    return list(dict.fromkeys(own))


def check_folder_name(key: str, name: str) -> None:
    """Raise UserError if a run's folder cannot have this name."""
    if NO_FOLDER.fullmatch(name):
        reserved = "nor a name that the project (lock, report.html) or Windows (CON) uses"
        raise UserError(f"{key}={name!r} must be a folder name without / or other special characters, {reserved}")
