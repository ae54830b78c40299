"""Faster equivalents of operations defined elsewhere in `model`, each called from one place, its definition."""
