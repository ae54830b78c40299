"""Export a trained model for other programs."""
