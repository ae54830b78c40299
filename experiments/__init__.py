"""Commands for experiments and finished runs; `python -m experiments` lists them by their first lines."""

import cli.startup  # noqa: F401 - before torch
