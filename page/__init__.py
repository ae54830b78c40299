"""A page in which one looks into a GPT and trains one."""

from cli.startup import require  # before torch

require("jinja2")
