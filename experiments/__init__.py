"""Experiments to run by themselves: python -m experiments.NAME. Each says what it shows in its first line."""

import training.openmp  # noqa: F401 - before torch
