"""Show what the attention heads of a trained model do: python -m experiments.heads --checkpoint runs/shakespeare"""

import os
import sys
from argparse import Namespace
from pathlib import Path

from cli.command import run_command
from cli.errors import UserError
from data.files import replace_text
from experiments.command import command, option, replaceable
from experiments.heads.analysis import analyse
from experiments.heads.heads_page import make_heads_page
from experiments.heads.heads_table import heads_table
from training.trained_model import load_model

MODELS = "a run folder or a checkpoint (default: the best saved last); two are shown side by side"
N_CHARACTERS = 20_000  # of the validation split, to silence heads over


@command(
    option("--checkpoint", type=Path, nargs="+", default=[None], metavar="PATH", help=MODELS),
    option("--text", metavar="TEXT", help="text to begin with (default: the start of the validation split)"),
    option("--output", type=replaceable, metavar="FILE", help="the page to write (default: in the run folder)"),
    option("--all", action="store_true", help=f"silence heads over the whole split, not {N_CHARACTERS:,} characters"),
    option("--device", default="auto", help="auto, cpu, cuda, cuda:1 or mps (%(default)s)"),
    memory="analyse a model with fewer heads or a shorter context",
)
def main(options: Namespace) -> None:
    if len(options.checkpoint) > 2:
        raise UserError("--checkpoint takes one model or two")
    opened = [load_model(path, options.device) for path in options.checkpoint]
    folder = opened[0].run_folder if len(opened) == 1 else None
    file = replaceable(options.output or (folder or Path()) / "heads.html")
    print(f"Measuring each head of {', '.join(each.source for each in opened)}", file=sys.stderr, flush=True)
    n = None if options.all else N_CHARACTERS
    analyses = [analyse(each.model, each.vocabulary, each.split("validation"), each.runtime, n) for each in opened]
    parts = [f"{each.path}\n{heads_table(analysis)}" for each, analysis in zip(opened, analyses, strict=True)]
    replace_text(file, make_heads_page(opened, analyses, options.text))
    parts.append(f"Page to open in a browser: {os.path.relpath(file)}")
    print("\n\n".join(parts))  # after the file is written, because a reader may close the pipe


if __name__ == "__main__":
    run_command(main)
