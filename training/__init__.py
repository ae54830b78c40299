"""What a run needs around the model: settings, optimisers, checkpoints, evaluation, the run folder, the console."""
