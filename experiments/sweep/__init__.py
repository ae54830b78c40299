"""Sweeps: one config, many runs, each variant with the same data and the same seeds."""
