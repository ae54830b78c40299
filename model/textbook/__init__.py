"""The ideas of attention, one at a time, written for reading; the GPT uses none of this code.

Read `gpt.py` for the whole algorithm in one file. The other files cover one idea each: `bigram.py` (no attention),
`head.py`, `multi_head.py`, `pooling.py`, `encoder_decoder.py` with its blocks, and `trace.py`.
"""
