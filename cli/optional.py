"""Libraries that only some commands need."""

import importlib
from typing import Any

from cli.errors import UserError


def optional_library(module: str, purpose: str, packages: str = "") -> Any:
    """Return a module. Raises UserError, which names the packages to install, if it is missing.

    packages: all that the purpose needs, if it needs more than the module's.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        packages = packages or module.partition(".")[0]
        raise UserError(f"{purpose} needs {packages.replace(' ', ' and ')}: pip install {packages}") from None
