"""How gradients become new weights: optimisers, schedules, averages."""
