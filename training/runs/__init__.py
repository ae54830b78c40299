"""What is on disk, and how a run starts, saves and resumes."""
