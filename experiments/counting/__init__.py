"""The loss of counted n-grams, to compare models with."""
