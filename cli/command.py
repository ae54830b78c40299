"""The frame of a command: its arguments, its output streams, and its exit status after an error."""

import argparse
import contextlib
import difflib
import os
import re
import signal
import sys
from collections.abc import Callable
from io import TextIOWrapper
from typing import NoReturn

from cli.errors import UserError, explain, is_for_user, is_out_of_memory, one_line


class CommandParser(argparse.ArgumentParser):
    """An argument parser that reports a mistake in one line."""

    def error(self, message: str) -> NoReturn:
        if unknown := re.match(r"unrecognized arguments: (-[^\s=]*)\S*", message):
            message = unknown[0]  # argparse also lists the valid arguments after it
            if close := difflib.get_close_matches(unknown[1], self._option_string_actions, n=1):
                message += f"; did you mean {close[0]}?"
            elif any("=" in str(action.metavar) for action in self._actions):
                message += "; write settings without dashes, as in model.n_head=8"
        self.exit(2, f"{self.prog}: {one_line(message)}; see {self.prog} --help\n")


def whole(lowest: int) -> Callable[[str], int]:
    """Return the type of a whole number from `lowest` on, below 2^63, the limit of PyTorch's seeds."""

    def parse(text: str) -> int:
        with contextlib.suppress(ValueError):
            if lowest <= int(text) < 2**63:
                return int(text)
        raise UserError(f"{text} must be a whole number, at least {lowest} and below 2^63")

    return parse


def silence_output() -> None:
    """Discard further output, because its reader has closed the pipe, as `head` does."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def report_errors(program: str, work: Callable[[], int], *, memory: str, encoding: str | None = None) -> int:
    """Run `work` and return the exit status.

    A user's mistake is one line and status 2, or the error's own status; lack of memory is one line and status 1. A
    closed output is no error. Any other exception is a bug and keeps its traceback.

    memory: the advice if memory runs out. encoding: of input and output, whose line ends are then not converted; by
    default, the system's.
    """
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding=encoding, errors="backslashreplace", newline="" if encoding else None)
    if encoding and isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(encoding=encoding, errors="surrogateescape", newline="")
    try:
        status = work()
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        silence_output()
        return 0
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except Exception as error:
        if is_for_user(error):
            print(f"{program}: {explain(error)}", file=sys.stderr)
            return getattr(error, "status", 2)
        if is_out_of_memory(error):
            print(f"{program}: out of memory; {memory}", file=sys.stderr)
            return 1
        raise


def run_command(main: Callable[[], int]) -> NoReturn:
    """Exit with the status of main; restore Python's handling of Ctrl-C unless the parent process ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main())
