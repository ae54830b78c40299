"""The playground's page: the same for the server and for a file to send."""

from collections.abc import Sequence
from itertools import zip_longest

from experiments.heads.measures import HeadMeasures
from experiments.pages import render
from experiments.playground.models import Model


def make_page() -> str:
    """Return the page that a server shows."""
    return render("playground/playground.html", title="Playground", exported=None)


def export(models: Sequence[Model], text: str) -> str:
    """Return a page that needs no server and shows what the models make of a text, of which they see the end."""
    return render("playground/playground.html", title="Playground", exported=answers(models, text))


def answers(models: Sequence[Model], text: str, measures: Sequence[HeadMeasures] = ()) -> dict:
    """Return what a page without a server shows. measures: of the heads of each model, for their roles."""
    pairs = zip_longest(models, measures)
    shown = [model.reader.read(text) | model.reader.look_inside(text, measures=each) for model, each in pairs]
    return {"models": [model.state() | {"opening": text} for model in models], "shown": shown}
