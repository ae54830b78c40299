"""What both commands share: one line for a mistake, and output that can always be written."""

import argparse
import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn


class CommandParser(argparse.ArgumentParser):
    """Arguments whose mistakes are told in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def prepare_streams(*, encoding: str | None = None) -> None:
    """Lets standard output take any character, and be closed from the start; line ends stay as they are written.

    encoding: of input and output, where it must not be that of the system.
    """
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - open as long as the program runs
    sys.stdout.reconfigure(encoding=encoding, errors="backslashreplace", newline="" if encoding else None)
    if encoding and sys.stdin is not None:
        sys.stdin.reconfigure(encoding=encoding, errors="surrogateescape", newline="")


def silence_output() -> None:
    """For when whoever read standard output has gone, as `head` does: what is still written goes nowhere, in peace."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def explain(error: Exception) -> str:
    """An error as one line, without Python's error numbers."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def is_out_of_memory(error: Exception) -> bool:
    """Whether this is one of the many ways in which memory runs out, on a CPU, a GPU or in NumPy."""
    signs = ("out of memory", "can't allocate memory", "not enough memory", "ALLOC_FAILED")
    return isinstance(error, MemoryError) or any(sign in str(error) for sign in signs)


def tell_mistakes(program: str, work: Callable[[], int], *, memory: str, encoding: str | None = None) -> int:
    """Does the work; the exit status. Mistakes of the user's, and lack of memory, are told in one line.

    memory: what to do where that has run out. encoding: see `prepare_streams`.
    """
    prepare_streams(encoding=encoding)
    try:
        return work()
    except BrokenPipeError:
        silence_output()  # the reader has gone, as `head` does: nothing is wrong
        return 0
    except (ValueError, OSError) as error:
        print(f"{program}: {explain(error)}", file=sys.stderr)
        return 2
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        print(f"{program}: out of memory; {memory}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def run_command(main) -> NoReturn:
    """Ends the process with what main returns. From here on Ctrl-C is Python's, unless it is ignored from outside."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main())
