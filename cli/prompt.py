"""Lines that a person types at a prompt."""

import contextlib
import sys


def read_line() -> str:
    """Return a line of standard input; on a terminal, one can edit it and recall earlier ones. Raises EOFError."""
    if sys.stdin.isatty() and sys.stdout.isatty():
        with contextlib.suppress(ImportError):  # Windows edits lines without it
            import readline  # noqa: F401 - `input` uses it
        while True:
            with contextlib.suppress(KeyboardInterrupt):
                return input("> ")
            print("\n(Ctrl-D ends)")
    print("> " if sys.stdin.isatty() else "", end="", file=sys.stderr, flush=True)
    if line := sys.stdin.readline():
        return line.rstrip("\r\n")
    raise EOFError
