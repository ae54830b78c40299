"""What all commands share: one-line errors, and output streams that do not fail."""

import argparse
import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Callable
from io import TextIOWrapper
from typing import NoReturn

LONGEST_LINE = 1_000  # characters of an error


class CommandParser(argparse.ArgumentParser):
    """An argument parser that reports a mistake in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {one_line(message)}; see {self.prog} --help\n")


def prepare_streams(*, encoding: str | None = None) -> None:
    """Make standard output accept any character, and make it usable even if it is closed.

    encoding: of input and output; if given, line ends are not converted. By default, the system's encoding.
    """
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - open while the program runs
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding=encoding, errors="backslashreplace", newline="" if encoding else None)
    if encoding and isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(encoding=encoding, errors="surrogateescape", newline="")


def silence_output() -> None:
    """Discard further output, because the reader of the pipe has closed it, as `head` does."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def explain(error: Exception) -> str:
    """Return an error as one line, without error numbers."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return one_line(f"{error.filename}: {error.strerror}")
    return one_line(str(error))


def one_line(text: str) -> str:
    """Return a message as a line that is safe to print: control characters escaped, its middle left out if long."""
    if len(text) > LONGEST_LINE:
        text = f"{text[: LONGEST_LINE // 2]} ... {text[-LONGEST_LINE // 2 :]}"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def is_out_of_memory(error: Exception) -> bool:
    """Return whether an error of PyTorch, CUDA or NumPy means that memory ran out."""
    signs = ("out of memory", "can't allocate memory", "not enough memory", "ALLOC_FAILED")
    return isinstance(error, MemoryError) or any(sign in str(error) for sign in signs)


def tell_mistakes(program: str, work: Callable[[], int], *, memory: str, encoding: str | None = None) -> int:
    """Run `work` and return its exit status; report the user's mistakes, and lack of memory, in one line.

    memory: the advice if memory runs out. encoding: see `prepare_streams`.
    """
    prepare_streams(encoding=encoding)
    try:
        return work()
    except BrokenPipeError:
        silence_output()  # the reader has closed the pipe, as `head` does: no error
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


def run_command(main: Callable[[], int]) -> NoReturn:
    """Exit with the status of main; restore Python's handling of Ctrl-C unless the parent process ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if "WORLD_SIZE" in os.environ:  # torchrun started this process
        _exit_at_once(main)
    sys.exit(main())


def _exit_at_once(main: Callable[[], int]) -> NoReturn:
    """Exit without ending the interpreter: threads of PyTorch's process groups may abort or block its end."""
    try:
        status = main()
    except Exception:
        traceback.print_exc()
        status = 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # it is closed, or there is none
            stream.flush()
    os._exit(status)
