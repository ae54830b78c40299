"""What a student writes into the exercise of the textbook, every function right."""

SOLUTION = """
import torch
import torch.nn.functional as F

def average_of_the_past(x):
    return x.cumsum(1) / torch.arange(1, x.size(1) + 1)[:, None]

def masked_softmax(scores, visible):
    e = scores.exp() * visible
    return e / e.sum(-1, keepdim=True)

def head(x, query_map, key_map, value_map):
    q, k, v = x @ query_map, x @ key_map, x @ value_map
    visible = torch.ones(x.size(1), x.size(1)).tril() == 1
    return masked_softmax(torch.einsum("btd,bsd->bts", q, k) / q.size(-1) ** 0.5, visible) @ v

def split_heads(x, n_head):
    return torch.stack(x.chunk(n_head, -1), dim=1)

def join_heads(x):
    return torch.cat(x.unbind(1), dim=-1)

def multi_head(x, query_map, key_map, value_map, output_map, n_head):
    maps = zip(*(m.chunk(n_head, 1) for m in (query_map, key_map, value_map)))
    return torch.cat([head(x, *three) for three in maps], dim=-1) @ output_map

def cross_attention(x, memory, padding_mask, query_map, key_map, value_map):
    q, k, v = x @ query_map, memory @ key_map, memory @ value_map
    return masked_softmax(q @ k.mT / q.size(-1) ** 0.5, padding_mask[:, None] == 1) @ v

def bigram_loss(table, ids):
    p = table.exp() / table.exp().sum(1, keepdim=True)
    return -sum(p[a, b].log() for a, b in zip(ids, ids[1:])) / (len(ids) - 1)
"""
