"""The ideas of attention, one at a time, written for reading; the GPT uses none of this code.

Read `gpt.py` for the whole algorithm in one file. The other files cover one idea each: `bigram.py` (no attention),
`multi_head.py`, `trace.py`, `pooling.py` and `encoder_decoder.py`.
"""
