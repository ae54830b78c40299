"""Faster equivalents of operations defined elsewhere in `model`, called from their definitions, and CUDA graphs."""
