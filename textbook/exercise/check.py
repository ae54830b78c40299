"""Write the exercise, and check what a reader made of it: which functions are right, and what is wrong in the next."""

import runpy
import traceback
from collections.abc import Callable
from pathlib import Path
from textwrap import fill
from typing import Any

import torch
from torch import Tensor

from cli.errors import UserError, one_line
from cli.hints import to_paste
from textbook.exercise.exercises import EXERCISES, Exercise

TEMPLATE = Path(__file__).parent / "attention_exercise.py"
SIZES = ((2, 4, 5, 6, 3), (1, 3, 2, 4, 2), (3, 7, 2, 8, 1))  # B, T, S, C and H


def write() -> int:
    """Write the exercise into the current folder. Raises UserError if it is there."""
    file, command = Path(TEMPLATE.name), to_paste("textbook", "--check", TEMPLATE.name)
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


def check(file: Path) -> int:
    """Print whether each function of the file is right, up to the first that is not; return 0 if all are.

    Raises UserError if the file cannot be run, or a function is missing.
    """
    file.read_bytes()  # an error here is not one of the file's code
    try:
        functions = runpy.run_path(str(file))
    except (Exception, SystemExit) as error:
        raise UserError(f"{file} {stop(error, str(file))}") from None
    for name in EXERCISES:
        if not callable(functions.get(name)):
            raise UserError(f"{file} has no function {name}")
    for name, exercise in EXERCISES.items():
        if found := fault(functions[name], exercise, str(file)):
            print(fill(f"{name} {found}", 80))
            return 1
        print(f"{name} is right.", flush=True)
    print("All are right. Read model/attention.py next: you have written what it computes.")
    return 0
