"""Analyse the attention heads of a checkpoint: what they attend to, and how important each one is."""
