"""Sweeps: many runs of one config, each combination of values with the same seeds."""
