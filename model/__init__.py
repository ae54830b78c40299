"""The model and nothing else: no files, no command line, no training.

README.md gives the reading order.
"""
