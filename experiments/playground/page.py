"""The playground's page: the same for the server and for a file to send."""

from collections.abc import Sequence

from experiments.pages import render
from experiments.playground.models import Model


def make_page() -> str:
    """Return the page that a server shows."""
    return render("playground/playground.html", title="Playground", exported=None)


def export(models: Sequence[Model], text: str) -> str:
    """Return a page that needs no server and shows what the models make of a text, of which they see the end."""
    shown = [model.reader.read(text) | model.reader.look_inside(text) for model in models]
    exported = {"models": [model.state() | {"opening": text} for model in models], "shown": shown}
    return render("playground/playground.html", title="Playground", exported=exported)
