"""How text is drawn from a model."""
