"""What a run reports while it works, and how long it will take."""
