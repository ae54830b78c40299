"""Show what the attention heads of a trained model do: python -m experiments.heads --checkpoint runs/shakespeare"""

import os
import sys
from argparse import Namespace
from pathlib import Path

from cli.command import run_command, whole
from cli.errors import UserError
from data.files import replace_text
from experiments.command import command, option, replaceable
from experiments.heads.analysis import analyse
from experiments.heads.heads_page import make_heads_page
from experiments.heads.heads_table import heads_table
from experiments.heads.history import appearances, make_history_page, trace_heads
from training.runs.find_checkpoint import find_run
from training.trained_model import load_model

MODELS = "a run folder or a checkpoint (default: the best saved last); two are shown side by side"
DEFAULT_LENGTH = 160  # characters of the page's text by default


@command(
    option("--checkpoint", type=Path, nargs="+", default=[None], metavar="PATH", help=MODELS),
    option("--over-time", type=Path, metavar="RUN", help="how the heads of a run with train.keep_checkpoints formed"),
    option("--text", metavar="TEXT", help="text of the attention maps (default: the start of the validation split)"),
    option("--output", type=replaceable, metavar="FILE", help="the page to write (default: in the run folder)"),
    option("--windows", type=whole(1), default=64, metavar="N", help="windows to measure heads on (%(default)s)"),
    option("--characters", type=whole(1), metavar="N", help="validation characters for the losses (all)"),
    option("--device", default="auto", help="auto, cpu, cuda, cuda:1 or mps (%(default)s)"),
    memory="shorten --text, or analyse a model with fewer heads or a shorter context",
)
def main(options: Namespace) -> None:
    if len(options.checkpoint) > 2:
        raise UserError("--checkpoint takes one model or two")
    if options.over_time and (options.checkpoint != [None] or options.text is not None):
        raise UserError("--over-time takes neither --checkpoint nor --text")
    size = {"n_windows": options.windows, "n_characters": options.characters}
    lines = show_history(options, size) if options.over_time else show_heads(options, size)
    print(lines)  # after all files are written, because a reader may close the pipe


def show_heads(options: Namespace, size: dict[str, int]) -> str:
    """Analyse one model or two, and write the page; return the table of the heads and where the page is."""
    opened = [load_model(path, options.device) for path in options.checkpoint]
    text = options.text
    if text is None:
        text = opened[0].opening(min(DEFAULT_LENGTH, *(each.model.config.block_size for each in opened)))
    if len({len(each.encode(text)) for each in opened}) > 1:
        raise UserError("a model of bytes and one of characters divide this text differently; give a --text in ASCII")
    print(f"Measuring each head of {', '.join(each.source for each in opened)}", file=sys.stderr, flush=True)
    analyses = [analyse(each.model, each.vocabulary, each.split("validation"), each.runtime, **size) for each in opened]
    parts = [f"{each.path}\n{heads_table(analysis)}" for each, analysis in zip(opened, analyses, strict=True)]
    page = make_heads_page(opened, analyses, text)
    folder = opened[0].run_folder if len(opened) == 1 else None
    parts.append(write_page(options.output or (folder or Path()) / "heads.html", page))
    return "\n\n".join(parts)


def show_history(options: Namespace, size: dict[str, int]) -> str:
    """Measure the heads of all kept weights of a run and write the page; return when the heads appeared."""
    run = find_run(options.over_time)
    files = run.all_kept()
    if len(files) < 2:
        raise UserError(f"{run.path}: kept no weights of its steps; train a run with train.keep_checkpoints=24")
    newest = load_model(files[max(files)], options.device)
    history = trace_heads(files, newest.split("validation"), newest.runtime, **size)
    where = write_page(options.output or run.path / "heads-over-time.html", make_history_page(run, history))
    return "\n".join([*appearances(history), where])


def write_page(path: Path, page: str) -> str:
    replace_text(replaceable(path), page)
    return f"Page to open in a browser: {os.path.relpath(path)}"


if __name__ == "__main__":
    run_command(main)
