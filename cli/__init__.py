"""What the commands share: errors of one line, output streams, signals, and threads."""
