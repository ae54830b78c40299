"""Everything a run needs around the model: config, optimisers, evaluation, checkpoints, run folder, console."""
