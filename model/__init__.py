"""The network and nothing else: no files, no arguments, no training.

Read `attention.py` first (one head, then all of them together), then `block.py`, then `gpt.py`.
"""
