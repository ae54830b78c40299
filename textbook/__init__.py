"""Attention in nine chapters; `python -m textbook 3` shows chapter 3 with shapes and numbers.

Read them in order. The GPT that the project trains imports none of them. Sizes have the same letters in every chapter:
B sequences of length T, so of T positions, each a vector of C numbers (channels); S positions of another sequence, if
there is one; H heads of D channels; V characters in the vocabulary. In products, Q, K and V are the matrices of
queries, keys and values, and x^T is the matrix x with rows and columns exchanged.
"""

from cli.startup import require  # before torch

require("matplotlib")
