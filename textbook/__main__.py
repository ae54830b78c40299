"""Show a chapter on attention with shapes and numbers, or list the chapters: python -m textbook 3"""

import importlib
import inspect
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill

import textbook
from cli.command import CommandParser, report_errors, run_command, whole
from cli.errors import UserError
from textbook.matrices import check_drawing, draw_matrices, written

FILES = sorted(Path(__file__).parent.glob("chapter*.py"))
CHAPTERS = [importlib.import_module(f"textbook.{file.stem}") for file in FILES]


def show(options: Namespace) -> int:
    """Print a chapter, or the list of chapters; also draw a picture if the options name one.

    Raises UserError if an option is not among the arguments of the chapter's `show`.
    """
    number, output = options.chapter, options.output
    if number is None:
        for chapter in CHAPTERS:
            print(str(chapter.__doc__).partition("?")[0] + "?")
        letters = fill(str(textbook.__doc__).split("\n\n")[1], 80)
        print(f"\n{letters}\n\nShow the first with python -m textbook 1")
        return 0
    if not 1 <= number <= len(CHAPTERS):
        raise UserError(f"there is no chapter {number}; choose 1 to {len(CHAPTERS)}")
    chapter = CHAPTERS[number - 1]
    settings = {name: value for name in ("steps", "corpus") if (value := getattr(options, name)) is not None}
    for name in settings.keys() - inspect.signature(chapter.show).parameters:
        raise UserError(f"chapter {number} has no --{name}")
    if output and number in (8, 9):
        raise UserError(f"chapter {number} has nothing to draw")
    if output:
        check_drawing(output)
    *introduction, following = str(chapter.__doc__).split("\n\n")
    for paragraph in introduction:
        print(f"{paragraph if paragraph.startswith(' ') else fill(paragraph, 80)}\n")
    matrices = {}
    for item in chapter.show(**settings):
        print(item if isinstance(item, str) else written(*item), flush=True)
        if isinstance(item, tuple):
            matrices[item[0]] = item[1]
    print(f"\n{fill(following, 80)}")
    if output:
        draw = getattr(chapter, "draw", lambda path: draw_matrices(path, matrices))
        draw(output)
        print(f"Drew {output}")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = CommandParser(prog="textbook", description=__doc__)
    parser.add_argument("chapter", type=int, nargs="?", help="a number from 1 to 9; without it: the list")
    parser.add_argument("--output", type=Path, metavar="FILE", help="also draw a picture")
    parser.add_argument("--steps", type=whole(1), metavar="N", help="train for N steps (chapters 6 and 9)")
    parser.add_argument("--corpus", metavar="NAME", help="the text of chapter 8: a named corpus or a file (selmere)")
    options = parser.parse_args(arguments)
    return report_errors("textbook", lambda: show(options), memory="close other programs")


if __name__ == "__main__":
    run_command(main)
