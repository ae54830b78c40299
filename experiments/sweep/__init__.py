"""Sweeps: one config, many runs, every variant with the same seeds."""
