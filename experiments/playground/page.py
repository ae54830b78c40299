"""The playground's page: the same for the server and for a file to send."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cli.errors import UserError
from experiments.html_page import json_for_script, make_html
from experiments.playground.models import Model

HERE = Path(__file__).parent
MOST_WEIGHTS = 1_500_000  # of a file to send: 16 bits each, 4 MB in base64, so that all of it stays under 5 MB


def make_page(*, nonce: str = "", exported: dict[str, Any] | None = None) -> str:
    """Return the page. exported: what it shows without a server."""
    body = (HERE / "playground.html").read_text(encoding="utf-8")
    if exported:
        body += f'<script type="application/json" id="exported">{json_for_script(exported)}</script>'
    style = "".join(
        file.read_text(encoding="utf-8") for file in (HERE / "../heads/viewer.css", HERE / "playground.css")
    )
    script = "".join(file.read_text(encoding="utf-8") for file in (HERE / "../heads/viewer.js", HERE / "playground.js"))
    return make_html("Playground", body, style=style, script=script, nonce=nonce)


def export(models: Sequence[Model], text: str) -> str:
    """Return a page that needs no server and shows what the models make of a text. Raises UserError if it is long."""
    n_heads = sum(len(model.reader.heads) for model in models)
    longest = min(math.isqrt(2 * MOST_WEIGHTS // n_heads), *(model.reader.model.config.block_size for model in models))
    if len(text) > longest:
        raise UserError(
            f"the text has {len(text):,} characters, but a page of {n_heads} heads has space for {longest:,}"
        )
    shown = [model.reader.read(text) | model.reader.look_inside(text) for model in models]
    return make_page(exported={"text": text, "models": [model.state() for model in models], "shown": shown})
