"""Disturb a real run with faults at random moments and compare its end with an undisturbed run."""
