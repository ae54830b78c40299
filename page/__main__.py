"""Write a page that is a trained model, and open it: python -m page --checkpoint runs/shakespeare"""

from argparse import Namespace
from pathlib import Path

from cli.command import run_command
from cli.errors import UserError
from cli.hints import shortened
from cli.options import command, option, replaceable
from data.files import replace_text
from page.models import make_page
from page.template import open_in_browser
from training.trained_model import load_model

OUTPUT = "the page to write (default: page.html in the run folder, or here for two models)"


@command(
    option("--checkpoint", type=Path, nargs="+", default=[None], metavar="PATH", help="a run or a checkpoint, or two"),
    option("--prompt", metavar="TEXT", help="text to begin with (default: the model writes one)"),
    option("--output", type=replaceable, metavar="FILE", help=OUTPUT),
    option("--no-browser", action="store_true", help="open no browser"),
)
def main(options: Namespace) -> None:
    if len(options.checkpoint) > 2:
        raise UserError("--checkpoint takes one model or two")
    opened = [load_model(path, "cpu") for path in options.checkpoint]
    page = make_page(opened, text=options.prompt)
    folder = opened[0].run_folder if len(opened) == 1 else None
    file = options.output or replaceable((folder or Path()) / "page.html")
    replace_text(file, page)
    sources = " and ".join(each.source for each in opened)
    name = shortened(file.absolute())
    print(f"{name}, {len(page) / 1e6:.1f} MB, works in any browser, also offline; it is {sources}")
    if not options.no_browser:
        open_in_browser(file)


if __name__ == "__main__":
    run_command(main)
