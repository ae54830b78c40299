"""Self-contained HTML pages, light or dark according to the reader's system."""

import json
from html import escape
from typing import Any

from experiments.drawing import PALETTE

STYLE = (
    PALETTE
    + """
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 78rem; padding: 1rem; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; line-height: 1.25; overflow-wrap: anywhere; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
p, li { max-width: 46rem; overflow-wrap: anywhere; } .faint { color: var(--faint); font-size: .9rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; }
th, td { padding: .4rem .55rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
th { white-space: normal; vertical-align: bottom; } th:first-child, td:first-child { text-align: left;
  position: sticky; left: 0; background: var(--ground); }
td:first-child { white-space: normal; min-width: 6rem; max-width: 24rem; }
figure { margin: 0; overflow-x: auto; } figure svg { display: block; min-width: 30rem; max-width: 54rem; }
pre { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; font: .85rem/1.4 ui-monospace, monospace; }
details { margin: 1rem 0; }
"""
)


def make_html(title: str, body: str, *, style: str = "", script: str = "") -> str:
    """Return a page with a title and a body of HTML."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<link rel="icon" href="data:,">
<style>{STYLE}{style}</style>
</head>
<body>
<h1>{escape(title)}</h1>
{body}
{f"<script>{script}</script>" if script else ""}
</body>
</html>
"""


def json_for_script(data: Any) -> str:
    """Return data as JSON for a script element of a page."""
    return json.dumps(data).replace("<", "\\u003c")  # so that no text in it ends the element
