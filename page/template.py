"""Self-contained documents from templates, such as pages that work from a file, without a server."""

import os
import re
import webbrowser
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from cli.options import MARK

HERE = Path(__file__).parent
IMPORT = re.compile(r'^import [^;]* from "(.*)";\n', re.MULTILINE)


def render(template: Path, **values: Any) -> str:
    """Return the document of a template. In HTML, the values are escaped.

    In the template, `source(path)` is a file beside it, and `style(path)` and `script(path)` are files of this folder.
    """
    environment = Environment(
        loader=FileSystemLoader(template.parent),
        autoescape=select_autoescape(),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals["source"] = lambda path: (template.parent / path).read_text("utf-8")
    environment.globals["style"] = style_sheet
    environment.globals["script"] = lambda path: joined(HERE / path)
    environment.globals["mark"] = MARK
    environment.policies["json.dumps_kwargs"] = {}  # keep the order of keys
    return environment.get_template(template.name).render(values)


def style_sheet(name: str) -> str:
    """Return a style sheet of this folder."""
    return (HERE / name).read_text("utf-8")


def joined(*modules: Path) -> str:
    """Return JavaScript modules and all that they import as one script, in which they share their names."""
    sources: dict[Path, str] = {}

    def add(file: Path) -> None:
        if file in sources:
            return
        text = file.read_text("utf-8")
        for path in IMPORT.findall(text):
            add((file.parent / path).resolve())
        sources[file] = re.sub("^export ", "", IMPORT.sub("", text), flags=re.MULTILINE)

    for module in modules:
        add(module.resolve())
    return "\n".join(sources.values())


def open_in_browser(page: Path) -> None:
    """Open a page in a graphical browser, if the machine has one."""
    os.environ.pop("TERM", None)  # with it, Python also offers text browsers, which take over the terminal
    webbrowser.open(page.resolve().as_uri())
