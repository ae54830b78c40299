"""Commands for experiments and finished runs; `python -m experiments` lists them by their first lines."""

from cli.startup import require  # before torch

require("jinja2", "matplotlib", "scipy")
