"""Types of the options of commands. A value that is out of range is a mistake, which the parser reports in one line."""

from argparse import ArgumentTypeError
from collections.abc import Callable
from pathlib import Path


def whole(lowest: int) -> Callable[[str], int]:
    """Return the type of a whole number from `lowest` on, below 2^63, the limit of PyTorch's seeds."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = lowest - 1
        if not lowest <= number < 2**63:
            raise ArgumentTypeError(f"{text} must be a whole number, at least {lowest} and below 2^63")
        return number

    return parse


def positive(text: str) -> float:
    """Return a number above zero."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise ArgumentTypeError(f"{text} must be a number above 0")
    return number


def file(text: str) -> Path:
    """Return the path of a file to write."""
    if not Path(text).name:
        raise ArgumentTypeError(f"{text} must be the name of a file")
    return Path(text)
