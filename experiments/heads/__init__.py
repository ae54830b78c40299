"""Look inside a checkpoint: what its attention heads look at, and how much each one matters."""
