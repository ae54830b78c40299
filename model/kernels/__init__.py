"""Faster equals of operations that are defined elsewhere in `model`. Each is called from one place, its definition."""
