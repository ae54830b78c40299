"""Commands for experiments and finished runs: python -m experiments.NAME. The first line of each describes it."""

import cli.startup  # noqa: F401 - before torch
