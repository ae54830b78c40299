"""Write the exercise, and check what a reader made of it: which functions are right, and what is wrong in the next."""

import inspect
import re
import runpy
import traceback
from collections.abc import Callable
from numbers import Real
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cli.errors import UserError, one_line
from cli.hints import to_paste
from textbook.exercise import solution
from textbook.exercise.mistakes import wrong_versions

NAMES = [name for name, function in vars(solution).items() if inspect.isfunction(function)]
# B, T, S, C and H. Small sizes come first, so that a reader sees a small input; C, H and D always differ. The third
# ones, D and their roots are all different, so that no two mistakes give the same.
SIZES = ((1, 4, 3, 6, 2), (2, 2, 2, 6, 2), (3, 5, 7, 12, 2), (2, 7, 5, 24, 3))


def write() -> int:
    """Write the exercise into the current folder. Raises UserError if it is there."""
    name = "attention_exercise.py"
    file, command = Path(name), to_paste("textbook", "--check", name)  # also in another folder
    if file.exists():
        raise UserError(f"{file} is there already: check it with {command}, or move it")
    _about_the_answers, text = inspect.getsource(solution).split("\n", maxsplit=1)
    text = re.sub(r'(?<="""\n)(    .*\n)+', "    raise NotImplementedError\n", text)  # the code after each docstring
    file.write_text(text.replace(f"python -m textbook --check {name}", command), encoding="utf-8")
    print(f"Wrote {file.resolve()}\nFill in its first function, then run {command}")
    return 0


def fault(function: Callable[..., Any], name: str, file: str = "") -> str:
    """Return what is wrong with a function of a file, for the first sizes at which it is not right; or nothing."""
    right = getattr(solution, name)
    for sizes in SIZES:
        arguments = draw_arguments(name, *sizes)
        shapes = ", ".join(str(tuple(x.shape) if isinstance(x, Tensor) else x) for x in arguments)
        given = f"(shapes of the input: {shapes})."
        try:
            y = answer(function, name, sizes)
        except NotImplementedError:
            return "is not written yet."
        except Exception as error:
            return f"{stop(error, file)} {given}"
        expected = right(*arguments)
        if not isinstance(y, Tensor):
            return f"returns {type(y).__name__}, not a tensor.{' Is a return missing?' if y is None else ''}"
        if y.shape != expected.shape:
            return f"returns the shape {tuple(y.shape)}, not {tuple(expected.shape)} {given}"
        if not near(y, expected, 1e-4):
            names = inspect.signature(right).parameters
            inputs = [written(x, f"{each} = ") for each, x in zip(names, arguments, strict=True)]
            shown = ["is wrong. For", *inputs, "it returns", written(y), "not", written(expected)]
            return "\n".join(shown) + mistake(function, name)
    return ""


def draw_arguments(name: str, B: int, T: int, S: int, C: int, H: int) -> tuple:
    """Return arguments of a function, always the same for the same sizes."""
    torch.manual_seed(0)
    D = C // H

    def draw(*shape: int) -> Tensor:  # whole numbers, which are short to read
        return torch.randint(-1, 2, shape).float()

    x = draw(B, T, C)
    scores = 2 * draw(B, T, S) - 20 * (torch.arange(T) % 4)[:, None]  # would show that hidden scores are only low
    visible = torch.rand(*((T,) if B % 2 else (B, 1)), S) < 0.6
    visible[..., 0] = True  # no row is wholly hidden
    padding_mask = ((torch.arange(S) - torch.arange(B)[:, None]) // 2 == 0).int()
    return {
        "average_of_the_past": (x,),
        "masked_softmax": (scores, visible),
        "head": (x, *draw(3, C, D)),
        "split_heads": (x, H),
        "join_heads": (draw(B, H, T, D),),
        "multi_head": (x, *draw(4, C, C), H),
        "cross_attention": (x, draw(B, S, C + 1), padding_mask, draw(C, D), *draw(2, C + 1, D)),
        "bigram_loss": (draw(T, T), torch.randint(T, (10 * B,))),
    }[name]


def answer(function: Callable[..., Any], name: str, sizes: tuple[int, ...]) -> Any:
    """Return what a function makes of new arguments, which it may change; a number as a tensor."""
    y = function(*draw_arguments(name, *sizes))
    return torch.tensor(y) if isinstance(y, Real) else y


def mistake(function: Callable[..., Any], name: str) -> str:
    """Return a sentence on the mistake that gives exactly what a function returns, for all sizes; or nothing."""
    for sentence, wrong in wrong_versions(name):
        if give_the_same(function, wrong, name):
            return f"\nExactly this comes out if {sentence}"
    return ""


def give_the_same(function: Callable[..., Any], other: Callable[..., Any], name: str) -> bool:
    try:
        pairs = ((answer(function, name, sizes), answer(other, name, sizes)) for sizes in SIZES)
        return all(near(y, z, 1e-5) and not y.isnan().all() for y, z in pairs)  # many give nothing but NaN
    except Exception:  # at other sizes than those shown
        return False


def written(x: Tensor | int, prefix: str = "") -> str:
    """Return the numbers of a tensor, with four decimals, behind a prefix; of a long tensor, those at its ends."""
    with np.printoptions(precision=4, suppress=True, linewidth=80, threshold=100):
        return prefix + np.array2string(np.asarray(x), prefix=prefix)


def near(x: Tensor, y: Tensor, tolerance: float) -> bool:
    return x.shape == y.shape and torch.allclose(x.double(), y.double(), rtol=tolerance, atol=tolerance, equal_nan=True)


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
    except Exception as error:
        raise UserError(f"{file} {stop(error, str(file))}") from None
    for name in NAMES:
        if not callable(functions.get(name)):
            raise UserError(f"{file} has no function {name}")
        if found := fault(functions[name], name, str(file)):
            for line in f"{name} {found}".splitlines():
                print(fill(line, 80, subsequent_indent="  "))
            return 1
        print(f"{name} is right.", flush=True)
    print("All are right. Read model/attention.py next: you have written what it computes.")
    return 0
