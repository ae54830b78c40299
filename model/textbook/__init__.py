"""Each idea of attention on its own, written for reading; the GPT runs none of it.

Read `gpt.py` for the whole algorithm in one file. The other files take one idea each: `bigram.py` (no attention),
`head.py`, `multi_head.py`, `pooling.py`, `encoder_decoder.py` with its blocks, and `trace.py`.
"""
