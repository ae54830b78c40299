"""Read, check and write the settings of a run."""
