"""Libraries that only some commands need."""

import importlib
from typing import Any

from cli.errors import UserError


def optional_library(module: str, purpose: str) -> Any:
    """Return a module. Raises UserError, which names the package to install, if it is missing."""
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise UserError(f"{purpose} needs {package}: pip install {package}") from None
