"""Play with a trained model in the browser: python -m experiments.playground --checkpoint runs/shakespeare"""

import contextlib
import errno
import time
import webbrowser
from argparse import Namespace
from pathlib import Path

from cli.command import run_command, whole
from cli.errors import UserError
from data.files import replace_text
from experiments.command import command, option, replaceable
from experiments.pages import render
from experiments.playground.models import Model, answers
from experiments.playground.server import LOCAL, PAGE, PlaygroundServer
from training.runs.find_checkpoint import checkpoint_in
from training.trained_model import TrainedModel, load_model

N_PORTS = 20  # to try


@command(
    option("--checkpoint", type=Path, nargs="+", default=[None], metavar="PATH", help="a run or a checkpoint, or two"),
    option(
        "--port", type=whole(0), default=8000, metavar="N", help="use the first free port from N; 0: any (%(default)s)"
    ),
    option("--host", default="127.0.0.1", metavar="ADDRESS", help="0.0.0.0: let a trusted network in (%(default)s)"),
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
    opened = [load_when_saved(path, options.device) for path in options.checkpoint]
    models = [Model(each) for each in opened]
    if options.export:
        replace_text(options.export, render(PAGE, title="Playground", exported=answers(models, options.text)))
        print(f"{options.export} shows the text without a server")
        return
    server = start_server(options.host, options.port, models)
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(options.host, options.host)
    address = f"http://{f'[{host}]' if ':' in host else host}:{server.server_address[1]}/"
    if options.host not in LOCAL:
        print(
            "WARNING: use this only on a trusted network: anyone who reaches this machine can use the model and read "
            "what others write",
            flush=True,
        )
    print(f"Playground at {address} (Ctrl-C ends it), with", *(each.source for each in opened), flush=True)
    if not options.no_browser:
        webbrowser.open(address)
    with server, contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


def load_when_saved(path: Path | None, device: str) -> TrainedModel:
    """Load a model; if it is a run without a checkpoint yet, wait for the first one."""
    if path and (path / "checkpoints").is_dir() and not checkpoint_in(path):
        print(f"{path} has no checkpoint yet; waiting for the first one (Ctrl-C ends)", flush=True)
        while not checkpoint_in(path):
            time.sleep(0.5)
    return load_model(path, device)


def start_server(host: str, port: int, models: list[Model]) -> PlaygroundServer:
    """Return a server at the first free port from `port` on. Raises UserError if there is none."""
    for number in range(port, port + N_PORTS):
        try:
            return PlaygroundServer((host, number), models)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            if getattr(error, "errno", None) != errno.EADDRINUSE:
                break
    raise UserError(f"--host {host} --port {port}: {reason}; choose another --host or --port")


if __name__ == "__main__":
    run_command(main)
