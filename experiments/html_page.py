"""Self-contained HTML pages, light or dark according to the reader's system."""

import json
from html import escape
from pathlib import Path
from typing import Any

from experiments.drawing import palette


def make_html(title: str, body: str, *, style: str = "", script: str = "", nonce: str = "") -> str:
    """Return a page with a title and a body of HTML. nonce: by which a server's policy allows the script."""
    shared = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<link rel="icon" href="data:,">
<style>
{palette()}
{shared}{style}</style>
</head>
<body>
<h1>{escape(title)}</h1>
{body}
{f'<script nonce="{nonce}">{script}</script>' if script else ""}
</body>
</html>
"""


def json_for_script(data: Any) -> str:
    """Return data as JSON for a script element of a page."""
    return json.dumps(data).replace("<", "\\u003c")  # so that no text in it ends the element
