"""Report on a sweep or on any runs: which variants differ by more than noise."""
