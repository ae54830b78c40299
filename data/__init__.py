"""Text to batches of character ids: `sources.py` finds it, `corpus.py` encodes it, `batches.py` cuts it up."""
