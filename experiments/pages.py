"""Self-contained HTML pages from templates, light or dark according to the reader's system."""

import os
import webbrowser
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from experiments.command import MARK

HERE = Path(__file__).parent


def render(template: str, **values: Any) -> str:
    """Return the page of a template, named by its path from this folder. In HTML, the values are escaped."""
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=select_autoescape(),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals["source"] = lambda *paths: "\n".join((HERE / path).read_text("utf-8") for path in paths)
    environment.globals["mark"] = MARK
    environment.policies["json.dumps_kwargs"] = {}  # keep the order of keys
    return environment.get_template(template).render(values)


def open_in_browser(page: Path) -> None:
    """Open a page in a graphical browser, if the machine has one."""
    os.environ.pop("TERM", None)  # with it, Python also offers text browsers, which take over the terminal
    webbrowser.open(page.resolve().as_uri())
