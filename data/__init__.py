"""Text to batches of character ids: `sources.py` finds text, `corpus.py` encodes it, `batches.py` makes batches."""
