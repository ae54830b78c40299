"""Report on a sweep or on any runs, and test which variants differ significantly."""
