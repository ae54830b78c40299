"""What differs between one process and several."""
