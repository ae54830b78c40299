"""The frame of a command: its arguments, its output streams, the signals that stop it, and its exit status."""

import argparse
import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from io import TextIOWrapper
from types import FrameType
from typing import Any, NoReturn

from cli.errors import UserError, explain, is_for_user, is_out_of_memory, one_line
from cli.hints import to_paste

# Shells and wrappers may send one Ctrl-C several times.
REPEATED_WITHIN_S = 0.5


class CommandParser(argparse.ArgumentParser):
    """An argument parser that reports a mistake in one line."""

    def error(self, message: str) -> NoReturn:
        if unknown := re.match(r"unrecognized arguments: (\S*)", message):
            message = unknown[0]  # argparse also lists the valid arguments after it
            if not unknown[1].startswith("-"):
                message += "; does it lack the name of its option before it, such as --checkpoint?"
            elif any("=" in str(action.metavar) for action in self._actions):
                message += "; settings have no dashes, as in model.n_head=8"
        self.exit(2, f"{self.prog}: {one_line(message)}; see {to_paste(self.prog, '--help')}\n")


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


def report_errors(
    program: str, work: Callable[[], int], *, memory: str, interrupted: str = "interrupted", encoding: str | None = None
) -> int:
    """Run `work` and return the exit status.

    A user's mistake is one line and status 2, or the error's own status; lack of memory is one line and status 1, and
    Ctrl-C one line and status 130. A closed output is no error. Any other exception is a bug and keeps its traceback.

    memory: the advice if memory runs out. interrupted: what Ctrl-C did. encoding: of the output, whose line ends
    are then not converted; by default, the system's.
    """
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding=encoding, errors="backslashreplace", newline="" if encoding else None)
    try:
        status = work()
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        silence_output()
        return 0
    except KeyboardInterrupt:
        print(f"\n{program}: {interrupted}", file=sys.stderr)
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
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main())


class Stopped(Exception):  # noqa: N818 - it is no error
    """The command must stop now, because of a signal."""

    def __init__(self, number: int):
        super().__init__(number)
        self.signal = signal.Signals(number)


class StopRequest:
    """A context that stores the first SIGINT, SIGTERM or SIGHUP in `signal`; a second one ends the process.

    A signal that the parent process ignores, as `nohup` does with SIGHUP, stays ignored.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._first_s = 0.0
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "StopRequest":
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)  # Windows has no SIGHUP
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                self._previous[number] = signal.signal(number, self._remember)
        return self

    def __exit__(self, *_) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Raise Stopped if a signal has arrived."""
        if self.signal:
            raise Stopped(self.signal)

    def _remember(self, number: int, _frame: FrameType | None) -> None:
        if self.signal is not None:
            if time.monotonic() - self._first_s < REPEATED_WITHIN_S:
                return
            _announce("\nStopped at once; unsaved steps are lost.\n")
            os._exit(128 + number)
        self.signal, self._first_s = signal.Signals(number), time.monotonic()
        _announce("\nStopping after this step and saving; press Ctrl-C again to stop at once without saving.\n")


def _announce(text: str) -> None:
    # os.write bypasses Python's buffers, which the interrupted code may be using.
    with contextlib.suppress(OSError):  # the terminal may be gone
        os.write(2, text.encode())
