"""The frame of a command with options: their names, their types, its errors and its exit status."""

import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cli.command import CommandParser, report_errors
from cli.errors import UserError

# Every file that an experiment writes contains this text; a table, its header.
MARK = "Written by an experiment, which may replace this file"


def option(*names: str, **settings: Any) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return the arguments of `ArgumentParser.add_argument`."""
    return names, settings


def command(*options):
    """Make a command, `main(arguments)`, of a function of the parsed options, which returns the status or None for 0.

    The name and description are those of the function's module.
    """

    def decorate(work: Callable[[Namespace], int | None]) -> Callable[..., int]:
        module = sys.modules[work.__module__]
        name = module.__spec__.name.removesuffix(".__main__") if module.__spec__ else work.__module__

        def main(arguments: Sequence[str] | None = None) -> int:
            parser = CommandParser(prog=name, description=module.__doc__)
            for names, settings in options:
                parser.add_argument(*names, **settings)
            memory = "take a smaller model or text, or fewer runs"
            return report_errors(name, lambda: work(parser.parse_intermixed_args(arguments)) or 0, memory=memory)

        return main

    return decorate


def replaceable(name: str | Path, *, mark: str = MARK) -> Path:
    """Return the path of a file to write. Raises UserError if it exists without the mark of an experiment."""
    path = Path(name)
    content = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    if content and mark not in content:
        raise UserError(f"{path} was not written by an experiment, so it is not replaced; name another file")
    return path
