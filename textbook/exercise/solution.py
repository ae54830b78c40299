# The exercise with its answers. `python -m textbook --exercise` writes all but this line and the code of the functions.
"""Write attention yourself: replace each `raise NotImplementedError`, from the top, and after each one run

    python -m textbook --check attention_exercise.py

B sequences have T positions, each a vector of C numbers (channels). A head has D channels, and a layer H heads. @ is
the product of matrices, for each sequence of the batch; a map W is applied as x @ W. Each function fits on a few lines,
and may use the ones above it. You need ones, tril, masked_fill, softmax(dim=...), reshape, transpose and log of
PyTorch. If you are stuck, textbook/exercise/solution.py in the project has one way to write each.
"""

import torch


def average_of_the_past(x):
    """(B, T, C) -> (B, T, C). At each position t, return the mean of the vectors at positions 0 to t (chapter 1)."""
    T = x.size(1)
    tril = torch.tril(torch.ones(T, T))
    return tril / tril.sum(dim=1, keepdim=True) @ x


def masked_softmax(scores, visible):
    """(..., T, S), visible (T, S) or (..., 1, S) -> (..., T, S). Return the weights of S keys for each query.

    ... stands for B, or for B and H; visible has True or False. The weights are the softmax of the scores of the
    visible keys; a hidden key has weight 0 (chapters 1 and 3).
    """
    return scores.masked_fill(~visible, float("-inf")).softmax(dim=-1)


def head(x, query_map, key_map, value_map):
    """(B, T, C), three maps (C, D) -> (B, T, D). Return the output of a head that never sees the future (chapter 3)."""
    q, k, v = x @ query_map, x @ key_map, x @ value_map  # (B, T, D) each
    scores = q @ k.transpose(1, 2) / q.size(-1) ** 0.5  # (B, T, T)
    T = x.size(1)
    visible = torch.tril(torch.ones(T, T)) == 1
    return masked_softmax(scores, visible) @ v


def split_heads(x, n_head):
    """(B, T, H D) -> (B, H, T, D). Head 0 gets the first D channels of each position, head 1 the next D (chapter 4)."""
    B, T, width = x.shape
    return x.reshape(B, T, n_head, width // n_head).transpose(1, 2)


def join_heads(x):
    """(B, H, T, D) -> (B, T, H D). Put the heads of each position side by side again (chapter 4)."""
    B, H, T, D = x.shape
    return x.transpose(1, 2).reshape(B, T, H * D)


def multi_head(x, query_map, key_map, value_map, output_map, n_head):
    """(B, T, C), four maps (C, C) -> (B, T, C). Return the output of n_head heads that never see the future.

    Each big map has the maps of all heads side by side; output_map mixes the joined heads (chapters 4 and 5).
    """
    q, k, v = (split_heads(x @ one_map, n_head) for one_map in (query_map, key_map, value_map))  # (B, H, T, D) each
    scores = q @ k.transpose(2, 3) / q.size(-1) ** 0.5  # (B, H, T, T)
    T = x.size(1)
    visible = torch.tril(torch.ones(T, T)) == 1
    return join_heads(masked_softmax(scores, visible) @ v) @ output_map


def cross_attention(x, memory, padding_mask, query_map, key_map, value_map):
    """(B, T, C), memory (B, S, M), maps (C, D), (M, D), (M, D) -> (B, T, D). One head; x reads the memory (chapter 5).

    The memory has M channels. padding_mask (B, S), of the numbers 0 and 1, is 0 where a position of the memory only
    fills up its sequence: nobody may read it.
    """
    q, k, v = x @ query_map, memory @ key_map, memory @ value_map  # (B, T, D), (B, S, D), (B, S, D)
    scores = q @ k.transpose(1, 2) / q.size(-1) ** 0.5  # (B, T, S)
    visible = padding_mask[:, None, :] == 1  # (B, 1, S)
    return masked_softmax(scores, visible) @ v


def bigram_loss(table, ids):
    """(V, V), (n,) -> a number: the mean of -log p(next) over all ids but the first, in nats (chapter 6).

    Row i of the table has the scores of what follows character i; their softmax is p.
    """
    log_p = table.log_softmax(dim=-1)  # (V, V)
    return -log_p[ids[:-1], ids[1:]].mean()
