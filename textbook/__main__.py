"""Show a chapter on attention with shapes and numbers, or list the chapters: python -m textbook 3"""

import importlib
import inspect
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

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


def list_chapters() -> None:
    for chapter in PARTS.values():
        print(str(chapter.__doc__).partition("?")[0] + "?")
    letters = fill(str(textbook.__doc__).split("\n\n")[1], 80)
    print(f"\n{letters}\n\nShow the first with {to_paste('textbook', 1)}")


def show(number: str, given: dict[str, Any]) -> None:
    """Print a chapter. Raises UserError if it does not exist, or its `show` has no parameter for a given option."""
    if number not in PARTS:
        raise UserError(f"there is no chapter {number}; choose 1 to {len(CHAPTERS)}, or ladder")
    chapter = PARTS[number]
    for name in given.keys() - inspect.signature(chapter.show).parameters:
        raise UserError(f"{'the ladder' if number == 'ladder' else f'chapter {number}'} has no --{name}")
    paragraphs = [x if x.startswith(" ") else fill(x, 80) for x in str(chapter.__doc__).split("\n\n")]
    n_last = sum(x.startswith(("Question: ", "Next: ")) for x in paragraphs)
    print("\n\n".join(paragraphs[:-n_last]) + "\n")
    for item in chapter.show(**given):
        print(wrapped(item) if isinstance(item, str) else written(*item), flush=True)
    print(("" if isinstance(item, tuple) else "\n") + "\n\n".join(paragraphs[-n_last:]))
    if "output" in given:
        print(f"Drew {given['output']}")


def run(options: Namespace) -> int:
    given = {name: value for name in OPTIONS if (value := getattr(options, name)) is not None}
    if given and options.chapter is None:
        raise UserError(f"--{next(iter(given))} goes only with the number of a chapter")
    if options.exercise:
        return check.write()
    if options.check:
        return check.check(options.check)
    if options.chapter is None:
        list_chapters()
    else:
        show(options.chapter, given)
    return 0


def wrapped(text: str) -> str:
    return "\n".join(fill(line, 80) if len(line) > 80 else line for line in text.split("\n"))


def written(title: str, value: Tensor, rows: Sequence[str] = (), columns: Sequence[str] = ()) -> str:
    """Return a title with the shape and numbers of a matrix: (rows, columns), or (rows, heads, columns) with gaps.

    rows: their names. With names for the columns, too, return a picture in digits: tenths, rounded down, and a dot for
    less than one.
    """
    n = value.size(-1)
    if columns:
        cells = [["." if x < 0.1 else f"{min(9, int(10 * x))}" for x in row] for row in value.flatten(1).tolist()]
        lines = ["  ".join("".join(row[i : i + n]) for i in range(0, len(row), n)) for row in (columns, *cells)]
        title, rows = f"{title}, in tenths", ("", *rows)
    else:
        cells = [[_number(x, value) for x in row] for row in value.flatten(1).tolist()]
        gaps = ["    " if j and j % n == 0 else "" for j in range(len(cells[0]))]
        widths = [len(gap + max(column, key=len)) for gap, *column in zip(gaps, *cells, strict=True)]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
        title = f"{title}  {tuple(value.shape)}"
    if rows:
        lines = [f"{name.ljust(max(map(len, rows)))}  {line}" for name, line in zip(rows, lines, strict=True)]
    return "\n  ".join([title, *lines]) + "\n"


def _number(x: float, of: Tensor) -> str:
    """Return a number as whole, with four decimals, or with five digits, as its matrix needs."""
    if (of == of.round()).all():
        return f"{x:z.0f}"
    smallest = of.abs()[of != 0].min()
    return f"{x:z.5g}" if 1e-9 < smallest < 1e-3 else f"{x:z.4f}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = CommandParser(prog="textbook", description=__doc__)
    task = parser.add_mutually_exclusive_group()
    task.add_argument("chapter", nargs="?", help="a number from 1 to 9, or ladder; without it: the list")
    parser.add_argument("--output", type=Path, metavar="FILE", help="also draw a picture (chapters 2 and 9, ladder)")
    parser.add_argument("--steps", type=whole(1), metavar="N", help="train for N steps (chapters 7 and 8, ladder)")
    parser.add_argument("--corpus", metavar="NAME", help="the text of chapter 6: a named corpus or a file (selmere)")
    task.add_argument("--exercise", action="store_true", help="write attention_exercise.py, functions to fill in")
    task.add_argument("--check", type=Path, metavar="FILE", help="check the functions that you wrote")
    options = parser.parse_args(arguments)
    return report_errors("textbook", lambda: run(options), memory="close other programs")


if __name__ == "__main__":
    run_command(main)
