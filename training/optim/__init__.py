"""How gradients become new weights: optimisers, schedules, averages, and the gate for bad gradients."""
