"""Attention in seven chapters, to be read from chapter 1 to chapter 7; the GPT of this project imports none of them.

`python -m experiments.textbook 3` shows chapter 3 with shapes and numbers. Letters mean the same in every chapter: B
sequences of T positions, each a vector of C numbers (channels); S positions of another sequence, if there is one; H
heads of D channels; V characters in the vocabulary.
"""
