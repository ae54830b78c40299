"""Typical mistakes in the exercise: what is wrong in each, and what comes out of it.

For each function of the exercise, a function with the same name and arguments returns {what is wrong: the result}.
"""

from functools import partial
from math import inf, log

import torch
from torch.nn.functional import scaled_dot_product_attention

from textbook.exercise import solution
from textbook.exercise.solution import masked_softmax as softmax

RESHAPED = "the numbers only got another shape. Transpose the axes T and H, too."


def average_of_the_past(x):
    square = torch.ones(x.size(1), x.size(1))
    tril, triu, before = square.tril(), square.triu(), square.tril(-1)
    return {
        "it is a sum. Divide it by the number of positions.": x.cumsum(1),
        "the sum is divided by T at all positions.": x.cumsum(1) / x.size(1),
        "each position has the mean of all, even of the future.": x.mean(1, keepdim=True).expand_as(x),
        "the columns are divided, not the rows: sum needs keepdim=True.": tril / tril.sum(1) @ x,
        "a position has the mean of itself and what follows: triu in place of tril.": triu / triu.sum(1, True) @ x,
        "a position does not use itself, only those before.": before / before.sum(1, True) @ x,
    }


def masked_softmax(scores, visible):
    of_all = scores.softmax(-1)
    return {
        "the mask comes after the softmax, so the rows no longer add up to 1. It belongs before it.": of_all * visible,
        "nothing is hidden. Is the mask used? (masked_fill returns a new tensor.)": of_all,
        "hidden keys have the score 0, and exp(0) is 1. They need -inf.": (scores * visible).softmax(-1),
        "hidden keys have the score -1, and exp(-1) is 0.37. They need -inf.": scores.where(visible, -1).softmax(-1),
        "what should be visible is hidden, and the other way round.": softmax(scores, ~visible),
        "the softmax runs over the queries. It belongs over the keys, dim=-1.": softmax(scores.mT, visible.mT).mT,
        "the softmax is missing.": scores.masked_fill(~visible, -inf),
    }


def weights(q, k, visible, C):
    """Return the weights (..., T, S) after mistakes in any attention."""
    T, D = q.shape[-2:]
    scores = q @ k.mT
    return masked_softmax(scores / D**0.5, visible) | {
        "the scores are not divided by sqrt(D).": softmax(scores, visible),
        "the scores are multiplied by sqrt(D), not divided.": softmax(scores * D**0.5, visible),
        "the scores are divided by D, not by sqrt(D).": softmax(scores / D, visible),
        "the scores are divided by sqrt(C). A head has only D channels.": softmax(scores / C**0.5, visible),
        "the scores are divided by sqrt(T). D is the number of channels of a key.": softmax(scores / T**0.5, visible),
    }


def causal_weights(q, k, C):
    """Return the weights (..., T, T) after mistakes in attention to the past."""
    T, D = q.shape[-2:]
    scores = q @ k.mT / D**0.5
    square = torch.ones(T, T, dtype=torch.bool)
    return weights(q, k, square.tril(), C) | {
        "a position sees the future, not the past: triu in place of tril.": softmax(scores, square.triu()),
        "the scores are transposed: K Q^T in place of Q K^T.": softmax(scores.mT, square.tril()),
        "a position sees the one after it, too: the triangle is too large.": softmax(scores, square.tril(1)),
        "a position does not see itself: the triangle is too small.": softmax(scores, square.tril(-1)),
    }


def head(x, query_map, key_map, value_map):
    v = x @ value_map
    return {each: w @ v for each, w in causal_weights(x @ query_map, x @ key_map, x.size(-1)).items()}


def split_heads(x, n_head):
    B, T, width = x.shape
    return {
        RESHAPED: x.reshape(B, n_head, T, width // n_head),
        "head 0 gets every H-th channel. It gets the first D.": x.unflatten(-1, (-1, n_head)).permute(0, 3, 1, 2),
    }


def join_heads(x):
    B, H, T, D = x.shape
    return {RESHAPED: x.reshape(B, T, H * D)}


def multi_head(x, query_map, key_map, value_map, output_map, n_head):
    as_one_head = x @ query_map, x @ key_map, x @ value_map  # (B, T, C) each
    q, k, v = (solution.split_heads(y, n_head) for y in as_one_head)  # (B, H, T, D) each
    badly_split = (y.reshape(q.shape) for y in as_one_head)
    interleaved = (y.unflatten(-1, (-1, n_head)).permute(0, 3, 1, 2) for y in as_one_head)
    attend = partial(scaled_dot_product_attention, is_causal=True)
    of_root_h = attend(q, k, v, scale=n_head**-0.5)
    right, of_bad_split = attend(q, k, v), attend(*badly_split)
    joined = {each: solution.join_heads(w @ v) for each, w in causal_weights(q, k, x.size(-1)).items()} | {
        "the scores are divided by sqrt(H). They need sqrt(D).": solution.join_heads(of_root_h),
        "each head gets every H-th channel. It gets D neighbours.": solution.join_heads(attend(*interleaved)),
        "the heads are joined without transposing.": right.reshape(x.shape),
        "the heads are split without transposing.": solution.join_heads(of_bad_split),
        "the heads are split and joined without transposing.": of_bad_split.reshape(x.shape),
        "all channels attend as one head. Split them first.": attend(*as_one_head),
    }
    mixed = {each: y @ output_map for each, y in joined.items()}
    joined_heads = solution.join_heads(right)
    return mixed | {
        "the last map is missing.": joined_heads,
        "the last map is transposed.": joined_heads @ output_map.T,
    }


def cross_attention(x, memory, padding_mask, query_map, key_map, value_map):
    v = memory @ value_map
    of_weights = weights(x @ query_map, memory @ key_map, padding_mask[:, None] == 1, x.size(-1))
    return {each: w @ v for each, w in of_weights.items()}


def bigram_loss(table, ids):
    loss, log_p = solution.bigram_loss(table, ids), table.log_softmax(-1)
    return {
        "it is a sum. Divide it by the number of pairs.": loss * (len(ids) - 1),
        "the sign is wrong. The loss is the mean of -log p.": -loss,
        "it is the mean of -p. The loss is that of -log p.": -table.softmax(-1)[ids[:-1], ids[1:]].mean(),
        "the sum is divided by n. There are n - 1 pairs.": loss * (len(ids) - 1) / len(ids),
        "it is in bits. With the natural logarithm, it is in nats.": loss / log(2),
        "each character predicts itself. Compare row ids[:-1] with column ids[1:].": -log_p[ids[:-1], ids[:-1]].mean(),
        "the rows are the second of each pair. They belong to the first.": -log_p[ids[1:], ids[:-1]].mean(),
    }
