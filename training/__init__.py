"""Everything that a run needs around the model: settings, optimisers, evaluation, checkpoints, folder and log."""
