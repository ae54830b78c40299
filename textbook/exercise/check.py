"""Write the exercise, and check what a reader made of it: which functions are right, and what is wrong in the next."""

import inspect
import runpy
import traceback
from collections.abc import Callable
from numbers import Real
from pathlib import Path
from textwrap import fill
from typing import Any

import torch
from torch import Tensor

from cli.errors import UserError, one_line
from cli.hints import to_paste
from textbook.exercise import solution
from textbook.exercise.exercises import EXERCISES, Exercise

TEMPLATE = Path(__file__).parent / "attention_exercise.py"
# B, T, S, C and H. Small sizes come first, so that a reader sees a small input.
SIZES = ((1, 3, 5, 4, 2), (2, 3, 2, 4, 2), (3, 5, 7, 12, 2), (2, 7, 5, 24, 3))
NAMING = SIZES[2]  # no two of these, of D and of their roots are equal, so that no two mistakes are


def write() -> int:
    """Write the exercise into the current folder. Raises UserError if it is there."""
    file, command = Path(TEMPLATE.name), to_paste("textbook", "--check", TEMPLATE.name)  # also in another folder
    if file.exists():
        raise UserError(f"{file} is there already: check it with {command}, or move it")
    text = TEMPLATE.read_text(encoding="utf-8")
    file.write_text(text.replace(f"python -m textbook --check {file}", command), encoding="utf-8")
    print(f"Wrote {file.resolve()}\nFill in its first function, then run {command}")
    return 0


def fault(function: Callable[..., Any], name: str, file: str = "") -> str:
    """Return what is wrong with a function of a file, for the first sizes at which it is not right; or nothing."""
    exercise = EXERCISES[name]
    for sizes in SIZES:
        torch.manual_seed(0)
        arguments = exercise.arguments(whole_numbers, *sizes)
        expected = exercise.right(*arguments)
        shapes = ", ".join(str(tuple(x.shape) if isinstance(x, Tensor) else x) for x in arguments)
        given = f"(shapes of the input: {shapes})."
        try:
            y = answer(function, arguments)
        except NotImplementedError:
            return "is not written yet."
        except (Exception, SystemExit) as error:
            return f"{stop(error, file)} {given}"
        if not isinstance(y, Tensor):
            return f"returns {type(y).__name__}, not a tensor.{' Is a return missing?' if y is None else ''}"
        if y.shape != expected.shape:
            return f"returns the shape {tuple(y.shape)}, not {tuple(expected.shape)} {given}"
        if not near(y, expected, 1e-4):
            names = inspect.signature(getattr(solution, name)).parameters
            inputs = "".join(f"{each} = {written(x)}\n" for each, x in zip(names, arguments, strict=True))
            instead = f"it returns\n{written(y)}\nnot\n{written(expected)}"
            return f"is wrong. For\n{inputs}{instead}{mistake(function, exercise, arguments)}"
    return ""


def whole_numbers(*shape: int) -> Tensor:
    return torch.randint(-1, 2, shape).float()


def answer(function: Callable[..., Any], arguments: tuple) -> Any:
    """Return what a function makes of copies of its arguments; a number as a tensor."""
    y = function(*(x.clone() if isinstance(x, Tensor) else x for x in arguments))
    if isinstance(y, Real):
        return torch.tensor(float(y))
    return y.detach() if isinstance(y, Tensor) else y


def mistake(function: Callable[..., Any], exercise: Exercise, shown: tuple) -> str:
    """Return a sentence that names the mistake which gives exactly the numbers of a function; or nothing.

    It gives them for the arguments that are shown, and for others, which tell all mistakes apart.
    """
    torch.manual_seed(0)
    inputs = (shown, exercise.arguments(torch.randn, *NAMING))
    try:
        answers = [answer(function, arguments) for arguments in inputs]
    except Exception:  # on other sizes; what is shown is wrong anyway
        return ""
    for sentence, keywords in exercise.mistakes.items():
        pairs = zip(inputs, answers, strict=True)
        if all(near(y, exercise.right(*arguments, **keywords), 1e-5) for arguments, y in pairs):
            return f"\nExactly this comes out if {sentence}"
    return ""


def written(x: Any) -> str:
    """Return a tensor as a nested list; with four decimals unless all numbers are whole."""
    if not isinstance(x, Tensor) or x.dtype == torch.bool:
        return str(x.tolist() if isinstance(x, Tensor) else x)
    if x.dim():
        return f"[{', '.join(map(written, x))}]"
    return f"{x:z.0f}" if x == x.round() else f"{x:z.4f}"


def near(x: Tensor, y: Tensor, tolerance: float) -> bool:
    same_shape = isinstance(x, Tensor) and x.shape == y.shape
    return same_shape and torch.allclose(x.double(), y.double(), rtol=tolerance, atol=tolerance, equal_nan=True)


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
    for name in EXERCISES:
        if found := fault(functions[name], name, str(file)):
            for line in f"{name} {found}".splitlines():
                print(fill(line, 80, subsequent_indent="  "))
            return 1
        print(f"{name} is right.", flush=True)
    print("All are right. Read model/attention.py next: you have written what it computes.")
    return 0
