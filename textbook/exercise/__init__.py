"""An exercise: functions on attention to write, and answers to what a reader wrote."""
