"""The model and nothing else: no files, no command line, no training.

README.md gives the reading order.
"""

from model.attention import attend
from model.block import Block
from model.cache import KVCache
from model.config import ModelConfig
from model.generate import Sampling, generate
from model.gpt import GPT

__all__ = ["GPT", "Block", "KVCache", "ModelConfig", "Sampling", "attend", "generate"]
