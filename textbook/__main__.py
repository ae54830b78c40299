"""Show a chapter on attention with shapes and numbers, or list the chapters: python -m textbook 3"""

import importlib
import inspect
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill, wrap
from typing import Any

import numpy as np
from matplotlib import style
from matplotlib.colors import SymLogNorm
from matplotlib.figure import Figure
from torch import Tensor

import textbook
from cli.command import CommandParser, report_errors, run_command, whole
from cli.errors import UserError
from cli.hints import to_paste
from textbook import ladder
from textbook.exercise import check

FILES = sorted(Path(__file__).parent.glob("chapter*.py"))
CHAPTERS = [importlib.import_module(f"textbook.{file.stem}") for file in FILES]
PARTS = {str(n + 1): chapter for n, chapter in enumerate(CHAPTERS)} | {"ladder": ladder}
OPTIONS = ("output", "steps", "corpus")  # of a chapter
FORMATS = (".png", ".svg", ".pdf")
LARGEST_WITH_NUMBERS = 80  # of a picture
Names = tuple[str | Sequence[str], ...]  # of rows and columns: one for each, or what all of them are


def list_chapters() -> None:
    for chapter in PARTS.values():
        print(str(chapter.__doc__).partition("?")[0] + "?")
    letters = fill(str(textbook.__doc__).split("\n\n")[1], 80)
    print(f"\n{letters}\n\nShow the first with {to_paste('textbook', 1)}")


def settings_of(options: Namespace) -> dict[str, Any]:
    """Return the options that a chapter's `show` takes. Raises UserError if there is no such chapter or option."""
    number, output = options.chapter, options.output
    if number not in PARTS:
        raise UserError(f"there is no chapter {number}; choose 1 to {len(CHAPTERS)}, or ladder")
    given = {name: value for name in OPTIONS if (value := getattr(options, name)) is not None}
    accepted = inspect.signature(PARTS[number].show).parameters
    for name in given.keys() - accepted - {"output"}:
        raise UserError(f"{'the ladder' if number == 'ladder' else f'chapter {number}'} has no --{name}")
    if output and number in ("6", "7"):
        raise UserError(f"chapter {number} has nothing to draw")
    if output and output.suffix not in FORMATS:
        raise UserError(f"{output}: end the name of the picture with {', '.join(FORMATS)}")
    if output and not output.parent.is_dir():
        raise UserError(f"{output.parent}: no such folder")
    return {name: value for name, value in given.items() if name in accepted}


def show(number: str, output: Path | None, settings: dict[str, Any]) -> None:
    """Print a chapter, and draw a picture if output names one."""
    chapter = PARTS[number]
    paragraphs = [x if x.startswith(" ") else fill(x, 80) for x in str(chapter.__doc__).split("\n\n")]
    n_last = sum(x.startswith(("Question: ", "Next: ")) for x in paragraphs)
    print("\n\n".join(paragraphs[:-n_last]) + "\n")
    matrices = []
    for item in chapter.show(**settings):
        print(wrapped(item) if isinstance(item, str) else written(*item), flush=True)
        if isinstance(item, tuple):
            matrices.append(item)
    print(("" if isinstance(item, tuple) else "\n") + "\n\n".join(paragraphs[-n_last:]))
    if rungs := ladder.rungs_of(number):
        print(fill(f"On the ladder ({to_paste('textbook', 'ladder')}): {', '.join(rungs)}", 80))
    if output:
        if "output" not in settings:  # the ladder draws what it has measured
            draw = getattr(chapter, "draw", lambda path: draw_matrices(path, matrices))
            draw(output)
        print(f"Drew {output}")


def run(options: Namespace) -> int:
    given = [name for name in OPTIONS if getattr(options, name) is not None]
    if given and options.chapter is None:
        raise UserError(f"--{given[0]} goes only with the number of a chapter")
    if options.exercise:
        return check.write()
    if options.check:
        return check.check(options.check)
    if options.chapter is None:
        list_chapters()
        return 0
    settings = settings_of(options)
    with style.context("default"):  # without the user's matplotlibrc
        show(options.chapter, options.output, settings)
    return 0


def wrapped(text: str) -> str:
    return "\n".join(fill(line, 80) if len(line) > 80 else line for line in text.split("\n"))


def written(title: str, value: Tensor, names: Names = ()) -> str:
    """Return a title with the shape and numbers of a matrix: (rows, columns), or (rows, heads, columns) with gaps.

    Weights of heads that are too wide for this become a picture of digits.
    """
    cells = [[_number(x, value) for x in row] for row in value.flatten(1).tolist()]
    gaps = ["    " if j and j % value.size(-1) == 0 else "" for j in range(len(cells[0]))]
    widths = [len(gap + max(column, key=len)) for gap, *column in zip(gaps, *cells, strict=True)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
    if names and not isinstance(names[0], str):
        if value.dim() == 3 and len(lines[0]) > 80:
            return in_tenths(title, value, *names)
        widest = max(map(len, names[0]))
        lines = [f"{name.ljust(widest)}  {line}" for name, line in zip(names[0], lines, strict=True)]
    return "\n  ".join([f"{title}  {tuple(value.shape)}", *lines]) + "\n"


def in_tenths(title: str, weights: Tensor, rows: Sequence[str], columns: Sequence[str]) -> str:
    """Return a picture of weights (rows, heads, columns): tenths, rounded down, and a dot for less than one."""
    widest, n = max(map(len, rows)), weights.size(-1)
    cells = [["." if x < 0.1 else f"{min(9, int(10 * x))}" for x in row] for row in weights.flatten(1).tolist()]
    table = [(name.ljust(widest), row) for name, row in zip(("", *rows), (columns, *cells), strict=True)]
    lines = ["   ".join([name, *("".join(row[i : i + n]) for i in range(0, len(row), n))]) for name, row in table]
    return "\n  ".join([f"{title}, in tenths", *lines]) + "\n"


def _number(x: float, of: Tensor) -> str:
    """Return a number as whole, with four decimals, or with five digits, as its matrix needs."""
    if (of == of.round()).all():
        return f"{x:z.0f}"
    smallest = of.abs()[of != 0].min()
    return f"{x:z.5g}" if 1e-9 < smallest < 1e-3 else f"{x:z.4f}"


def draw_matrices(path: Path, matrices: Sequence[tuple[str, Tensor, Names]]) -> None:
    """Draw each matrix as a map of colours with its numbers; what a mask hides is grey.

    All have one scale of colours. Above 1 it follows ratios, so that weights differ beside large scores.
    """
    n_columns = min((4, 3, 5), key=lambda n: -len(matrices) % n)  # with the fewest empty places
    n_rows = -(-len(matrices) // n_columns)
    figure = Figure(figsize=(4 * n_columns, 3.5 * n_rows), layout="constrained")
    axes = figure.subplots(n_rows, n_columns, squeeze=False)
    largest = max(value[value.isfinite()].max().item() for _, value, _ in matrices)
    scale = SymLogNorm(linthresh=1, vmin=0, vmax=largest)
    for axis in axes.flat[len(matrices) :]:
        axis.axis("off")
    for axis, (title, value, names) in zip(axes.flat, matrices, strict=False):
        numbers = value.flatten(1).double().numpy()
        image = axis.imshow(numbers, cmap="Blues", norm=scale, aspect="auto")
        axis.set_facecolor("lightgray")
        for j in range(value.size(-1), numbers.shape[1], value.size(-1)):
            axis.axvline(j - 0.5, color="black")  # between two heads
        axis.set_title("\n".join(wrap(title, 50)), fontsize=9)
        for side, name, n in zip((axis.yaxis, axis.xaxis), names, numbers.shape, strict=True):
            side.set_ticks(range(n), range(1, n + 1) if isinstance(name, str) else name)
            side.set_label_text(name if isinstance(name, str) else "")
        axis.tick_params("x", rotation=90 if numbers.shape[1] > 8 else 0)
        if numbers.size <= LARGEST_WITH_NUMBERS:
            for (i, j), number in np.ndenumerate(numbers):
                colour = "white" if scale(number) > 0.7 else "black"
                axis.text(j, i, f"{number:z.3g}", ha="center", va="center", fontsize=8, color=colour)
    figure.colorbar(image, ax=axes, aspect=40, ticks=(0, 0.5, 1, 2, 5, 10, 20, 50), format="%g")
    figure.savefig(path, dpi=120)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = CommandParser(prog="textbook", description=__doc__)
    task = parser.add_mutually_exclusive_group()
    task.add_argument("chapter", nargs="?", help="a number from 1 to 9, or ladder; without it: the list")
    parser.add_argument("--output", type=Path, metavar="FILE", help="also draw a picture")
    parser.add_argument("--steps", type=whole(1), metavar="N", help="train for N steps (chapters 7 and 8, ladder)")
    parser.add_argument("--corpus", metavar="NAME", help="the text of chapter 6: a named corpus or a file (selmere)")
    task.add_argument("--exercise", action="store_true", help="write attention_exercise.py, functions to fill in")
    task.add_argument("--check", type=Path, metavar="FILE", help="check the functions that you wrote")
    options = parser.parse_args(arguments)
    return report_errors("textbook", lambda: run(options), memory="close other programs")


if __name__ == "__main__":
    run_command(main)
