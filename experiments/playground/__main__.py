"""Play with a trained model in the browser: python -m experiments.playground --checkpoint runs/shakespeare"""

import contextlib
import webbrowser
from argparse import Namespace
from pathlib import Path

from cli.command import run_command
from cli.errors import UserError
from data.files import replace_text
from experiments.command import command, option, replaceable, whole
from experiments.playground.models import Model
from experiments.playground.page import export, make_page
from experiments.playground.server import PlaygroundServer
from training.trained_model import load_model


@command(
    option("--checkpoint", type=Path, nargs="+", default=[None], metavar="PATH", help="a run or a checkpoint, or two"),
    option("--port", type=whole(0), default=8000, metavar="N", help="0 takes any free one (%(default)s)"),
    option("--host", default="127.0.0.1", metavar="ADDRESS", help="0.0.0.0 lets other machines in (%(default)s)"),
    option("--no-browser", action="store_true", help="open no browser"),
    option("--export", type=replaceable, metavar="FILE", help="write a page that needs no server, and stop"),
    option("--text", metavar="TEXT", help="text of the exported page"),
    option("--device", default="auto", help="auto, cpu, cuda, cuda:1 or mps (%(default)s)"),
)
def main(options: Namespace) -> None:
    if len(options.checkpoint) > 2:
        raise UserError("--checkpoint takes one model or two")
    if bool(options.text) != bool(options.export):
        raise UserError("--export needs a --text, and --text an --export; on the page itself, type a text")
    opened = [load_model(path, options.device) for path in options.checkpoint]
    models = [Model(each) for each in opened]
    if options.export:
        replace_text(options.export, export(models, options.text))
        print(f"{options.export} shows the text without a server")
        return
    try:
        server = PlaygroundServer((options.host, options.port), models, make_page())
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"--host {options.host} --port {options.port}: {reason}; choose another --port") from None
    address = f"http://{options.host}:{server.server_address[1]}/"
    if options.host not in ("127.0.0.1", "localhost", "::1"):
        print("WARNING: everybody who reaches this machine can use the model and read what others write", flush=True)
    print(f"Playground at {address} (Ctrl-C ends it), with", *(each.origin for each in opened), flush=True)
    if not options.no_browser:
        webbrowser.open(address)
    with server, contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


if __name__ == "__main__":
    run_command(main)
