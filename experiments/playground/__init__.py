"""A page on which one plays with a trained model."""
