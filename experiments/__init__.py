"""Commands for experiments and finished runs."""

from cli.startup import require  # before torch

require("jinja2", "matplotlib", "scipy")
