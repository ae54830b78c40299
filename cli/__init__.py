"""What the commands share: errors of one line, rules of settings, output streams, signals, and threads."""
