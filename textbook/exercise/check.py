"""Write the exercise, and check what a reader made of it: which functions are right, and what is wrong in the next one.

The reader's code runs in a process of its own, because it may never end.
"""

import multiprocessing
import runpy
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from textwrap import fill
from typing import Any

import torch
from torch import Tensor

from cli.errors import UserError, one_line
from textbook.exercise.exercises import EXERCISES, Exercise

TEMPLATE, SECONDS = Path(__file__).parent / "attention_exercise.py", 10  # for one function
SIZES = ((2, 4, 5, 6, 3), (1, 3, 2, 4, 2), (3, 7, 2, 8, 1))  # B, T, S, C and H


def write() -> int:
    """Write the exercise into the current folder. Raises UserError if it is there."""
    file, command = Path(TEMPLATE.name), f"python -m textbook --check {TEMPLATE.name}"
    if file.exists():
        raise UserError(f"{file} is there already: check it with {command}, or move it")
    file.write_text(TEMPLATE.read_text(encoding="utf-8"), encoding="utf-8")
    print(f"Wrote {file}. Fill in its first function, then run {command}")
    return 0


def fault(function: Callable[..., Any], exercise: Exercise, file: str = "") -> str:
    """Return what is wrong with a function of a file, for the first sizes at which it is not right; or nothing."""
    for sizes in SIZES:
        torch.manual_seed(0)
        arguments = exercise.arguments(*sizes)
        expected = exercise.right(*arguments)
        given = f"(shapes: {', '.join(str(tuple(x.shape) if isinstance(x, Tensor) else x) for x in arguments)})."
        try:
            y = function(*(x.clone() if isinstance(x, Tensor) else x for x in arguments))
        except NotImplementedError:
            return "is not written yet."
        except (Exception, SystemExit) as error:
            return f"{stop(error, file)} {given}"
        if not isinstance(y, Tensor):
            return f"returns {type(y).__name__}, not a tensor.{' Is a return missing?' if y is None else ''}"
        if y.shape != expected.shape:
            return f"returns the shape {tuple(y.shape)}, not {tuple(expected.shape)} {given}"
        if len(places := (~near(y, expected, 1e-3)).nonzero()):
            place = tuple(places[0].tolist())
            at = f" at {list(place)}" if place else ""
            wrong = f"returns {y[place].item():.4f}{at}, not {expected[place].item():.4f} {given}"
            for sentence, mistake in exercise.mistakes.items():
                if near(y, exercise.right(*arguments, **mistake), 1e-5).all():
                    return f"{wrong} Exactly this comes out if {sentence}"
            return wrong
    return ""


def near(x: Tensor, y: Tensor, tolerance: float) -> Tensor:
    return torch.isclose(x.double(), y.double(), rtol=tolerance, atol=tolerance, equal_nan=True)


def stop(error: BaseException, file: str) -> str:
    """Return the lines of the file that an error passed, if any, and the error."""
    lines = [str(frame.lineno) for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    place = f" in line {', which calls line '.join(lines)}" if lines else ""
    return f"stops{place}: {type(error).__name__}: {one_line(str(error))}"


def answer(file: str, connection: Connection) -> None:
    """Send an empty text, then what is wrong with the file, then with each function; empty texts if nothing is."""
    connection.send("")
    functions: dict[str, Any] = {}
    try:
        functions = runpy.run_path(file)
        found = next((f"has no function {name}" for name in EXERCISES if not callable(functions.get(name))), "")
    except (Exception, SystemExit) as error:
        found = stop(error, file)
    connection.send(found)
    for name, exercise in EXERCISES.items():
        found = found or fault(functions[name], exercise, file)
        sys.stdout.flush()  # what the function prints, before this process is stopped
        connection.send(found)


def check(file: Path) -> int:
    """Print whether each function of the file is right, up to the first that is not; return 0 if all are.

    Raises UserError if the file cannot be run, or a function is missing or does not end.
    """
    file.read_bytes()  # a missing file is this process's error
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=answer, args=(str(file), sender), daemon=True)
    process.start()
    sender.close()
    try:
        receiver.recv()  # the process has started
        for name in ("the file", *EXERCISES):
            if not receiver.poll(SECONDS):
                raise UserError(f"{file}: {name} has not ended after {SECONDS} s: look for an endless loop")
            found = receiver.recv()
            if found and name == "the file":
                raise UserError(f"{file} {found}")
            if found:
                print(fill(f"{name} {found}", 80))
                return 1
            if name != "the file":
                print(f"{name} is right.")
    except EOFError:
        raise UserError(f"{file}: {name} ended Python itself") from None
    finally:
        process.kill()
    print("All are right. Read model/attention.py next: you have written what it computes.")
    return 0
