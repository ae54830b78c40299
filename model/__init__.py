"""The network and nothing else: no files, no arguments, no training.

Read `attention.py` first (one head, then several side by side), then `block.py`, then `gpt.py`.
"""

from model.attention import Head, MultiHeadAttention, attend
from model.block import Block
from model.cache import KVCache
from model.config import ModelConfig
from model.generate import Sampling, generate
from model.gpt import GPT

__all__ = ["GPT", "Block", "Head", "KVCache", "ModelConfig", "MultiHeadAttention", "Sampling", "attend", "generate"]
