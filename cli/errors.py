"""Errors that a user can act on, as one line; any other exception is a bug."""

import contextlib
import re
from argparse import ArgumentTypeError
from collections.abc import Iterator

LONGEST_LINE = 1_000  # characters of an error


class UserError(ValueError, ArgumentTypeError):  # argparse shows its message
    """A mistake of the user, or a fault of the machine. The message is one sentence that says what to do.

    status: the exit status of a command that ends with it.
    """

    status = 2


@contextlib.contextmanager
def checking_values(place: str = "") -> Iterator[None]:
    """Turn a ValueError into a UserError, for the construction of objects that check values given by the user.

    place: the source of the values, which precedes the message.
    """
    try:
        yield
    except ValueError as error:
        raise UserError(f"{place}{error}") from None


def is_for_user(error: BaseException) -> bool:
    """Return whether an error is a UserError, or a refusal of the operating system."""
    return isinstance(error, UserError) or bool(isinstance(error, OSError) and error.strerror)


def explain(error: BaseException) -> str:
    """Return an error as one line: its message for a user, or the type and message of a bug."""
    if not is_for_user(error):
        return one_line(f"{type(error).__name__}: {error}")
    if isinstance(error, OSError):
        name = error.filename2 or error.filename  # filename2: the new name; a full disk names no file
        return one_line(f"{name}: {error.strerror}" if name else f"{error.strerror}")
    return one_line(str(error))


def printable(text: str) -> str:
    """Escape the control characters of a text, except tabs and line ends, because they could control the terminal."""
    return re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]", lambda found: one_line(found[0]), text)


def one_line(text: str) -> str:
    """Return a message as a line that is safe to print: control characters escaped, its middle left out if long."""
    if len(text) > LONGEST_LINE:
        text = f"{text[: LONGEST_LINE // 2]} ... {text[-LONGEST_LINE // 2 :]}"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error of PyTorch, CUDA or NumPy means that memory ran out."""
    signs = ("out of memory", "can't allocate memory", "not enough memory", "ALLOC_FAILED")
    return isinstance(error, MemoryError) or any(sign in str(error) for sign in signs)
