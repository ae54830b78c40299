"""Libraries that only some commands need."""

import importlib
from typing import Any

from cli.errors import UserError


def optional_library(name: str, purpose: str) -> Any:
    """Return the module of a library, whose package has the same name. Raises UserError if it is missing."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UserError(f"{purpose} needs {name}: pip install {name}") from None
