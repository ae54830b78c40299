"""Inside a checkpoint: what its attention heads look at, and what they are worth."""
