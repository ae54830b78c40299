"""The playground's page: the same for the server and for a file to send."""

import math
from collections.abc import Sequence

from cli.errors import UserError
from experiments.pages import render
from experiments.playground.models import Model

MOST_WEIGHTS = 1_500_000  # of a file to send: 16 bits each, 4 MB in base64, so that all of it stays under 5 MB


def make_page() -> str:
    """Return the page that a server shows."""
    return render("playground/playground.html", title="Playground", exported=None)


def export(models: Sequence[Model], text: str) -> str:
    """Return a page that needs no server and shows what the models make of a text. Raises UserError if it is long."""
    n_heads = sum(len(model.reader.heads) for model in models)
    longest = min(math.isqrt(2 * MOST_WEIGHTS // n_heads), *(model.reader.model.config.block_size for model in models))
    if len(text) > longest:
        raise UserError(
            f"the text has {len(text):,} characters, but a page of {n_heads} heads has space for {longest:,}"
        )
    shown = [model.reader.read(text) | model.reader.look_inside(text) for model in models]
    exported = {"models": [model.state() for model in models], "shown": shown}
    return render("playground/playground.html", title="Playground", exported=exported)
