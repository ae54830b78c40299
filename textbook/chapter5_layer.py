"""Chapter 5: how do maps, heads and masks make one layer? Maps stand before the heads and after them, masks between
scores and softmax.

Answer to the question of chapter 4: half of each place: 0.5. Equal scores have equal weights.

The heads stand side by side (Concat), and a last linear map, Wo, mixes them:

    head_i = attention(X Wq_i, memory Wk_i, memory Wv_i), for i = 1 to H
    output = Concat(head_1, ..., head_H) Wo

X has the vectors that ask, the memory those that are read. Each head's Wq_i, Wk_i and Wv_i have the shape (C, D), and
Wo has the shape (H D, C). In self-attention, a sequence reads itself: the memory is X. In cross-attention, it reads
another, which may have another length S. Queries, keys and values may also come from three inputs. A layer takes eight
steps: linear maps, split into heads, scores, mask, softmax, sum of values, join (merge), last map.

One big map holds the Wq_i of all heads as blocks of its columns, so one product gives the queries of all heads. A bias
is a parameter that is added to each channel of a result. The maps have no biases here; bias=True adds them, as some
texts do.

In every mask, 0 or False means hidden. A padding mask hides the keys of positions that only fill up a short sequence;
the outputs at these positions are computed, and ignored. An attention mask hides different keys from different queries
in self-attention; the look-ahead (causal) mask of chapter 3 is one. A memory mask does so in cross-attention. A query
that sees no key gets weights of 0, so it reads nothing, and its output is 0, or the bias of the last map; a plain
softmax gives 0 / 0 = NaN (not a number).

Question: what does the first query of the second sequence read if the padding mask shows it? In `show`, write [1, 1, 1,
0] for the second row of `padding`.

Next: python -m textbook 6 shows what a model without attention can predict, and what training is.
"""

from collections.abc import Iterator
from functools import reduce

import torch
from torch import Tensor, nn

from model.attention import causal_mask, masked_softmax
from model.scoring import Score, scaled_dot, uniform
from textbook.chapter3_head import one_head
from textbook.chapter4_heads import join_heads, split_heads


def combine_masks(
    padding_mask: Tensor | None = None, attention_mask: Tensor | None = None, memory_mask: Tensor | None = None
) -> Tensor | None:
    """Combine masks into one that broadcasts to (B, 1, T, S), True where no mask hides the key; None without masks.

    padding_mask (B, S) hides keys of a sequence, attention_mask (T, S) and memory_mask (T, S) keys from a query.
    """
    if padding_mask is not None:
        padding_mask = padding_mask[:, None, None, :]  # (B, 1, 1, S)
    masks = [mask != 0 for mask in (padding_mask, attention_mask, memory_mask) if mask is not None]
    return reduce(torch.logical_and, masks) if masks else None


class MultiHeadAttention(nn.Module):
    """Several heads side by side and one output map, with a result of `width` channels (Vaswani et al., 2017).

    Each head has queries, keys and values of head_size channels, by default width / n_head; head_size=width gives wide
    heads. The queries come from query_size channels, by default width, the keys and values from key_size, by default
    query_size.
    """

    def __init__(
        self,
        width: int,
        n_head: int,
        *,
        head_size: int | None = None,
        query_size: int | None = None,
        key_size: int | None = None,
        bias: bool = False,
        score: Score = scaled_dot,
    ):
        super().__init__()
        if head_size is None and width % n_head:
            raise ValueError(f"width={width} cannot be split into n_head={n_head} heads; set head_size")
        head_size = head_size or width // n_head
        query_size = query_size or width
        key_size = key_size or query_size
        self.n_head, self.score = n_head, score
        self.query = nn.Linear(query_size, n_head * head_size, bias=bias)
        self.key = nn.Linear(key_size, n_head * head_size, bias=bias)
        self.value = nn.Linear(key_size, n_head * head_size, bias=bias)
        self.proj = nn.Linear(n_head * head_size, width, bias=bias)

    def forward(self, *inputs: Tensor, **masks) -> Tensor:
        """Return the output (B, T, width) for one to three inputs; see `trace`."""
        return self.trace(*inputs, **masks)["output"]

    def trace(self, queries: Tensor, keys=None, values=None, *, causal=False, **masks) -> dict[str, Tensor]:
        """Attend from queries (B, T, query_size) to keys and values (B, S, key_size).

        keys default to the queries (self-attention), values to the keys. causal hides later keys; masks: see
        `combine_masks`. Returns every value by name: X, the queries; Q (B, H, T, D), K and V (B, H, S, D); scores
        before masks and weights (B, H, T, S); heads (B, H, T, D); joined (B, T, H D); output (B, T, width).
        """
        keys = queries if keys is None else keys
        values = keys if values is None else values
        inputs = ((self.query, queries), (self.key, keys), (self.value, values))
        q, k, v = (split_heads(linear(x), self.n_head) for linear, x in inputs)  # (B, H, T or S, D)
        scores = self.score(q, k)  # (B, H, T, S)
        # A query that sees no key: zeros in place of NaN. The mask also keeps the NaN out of the gradients.
        weights = masked_softmax(scores, visible=combine_masks(**masks), causal=causal).nan_to_num()
        heads = weights @ v  # (B, H, T, D)
        joined = join_heads(heads)  # (B, T, H D)
        found = {"X": queries, "Q": q, "K": k, "V": v, "scores": scores, "weights": weights, "heads": heads}
        return found | {"joined": joined, "output": self.proj(joined)}  # (B, T, width)


def one_head_at_a_time(layer: MultiHeadAttention, x: Tensor) -> Tensor:
    """Return Concat(head_1, ..., head_H) Wo of x (B, T, C), with each head's block of columns of the big maps."""
    big_maps = (linear.weight.T for linear in (layer.query, layer.key, layer.value))  # (C, H D) each
    maps = zip(*(big_map.chunk(layer.n_head, dim=1) for big_map in big_maps), strict=True)  # (C, D) each
    return layer.proj(torch.cat([one_head(x, *three)["output"] for three in maps], dim=-1))


# An 8 x 8 picture in four patches of 16 numbers, row by row: upper left, upper right, lower left, lower right.
PALE = [0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0]
DARK = [0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 1, 1, 0]
PATCHES = [PALE, DARK, PALE, DARK]


def join_patches(patches: Tensor) -> Tensor:
    """Return the picture (8, 8) of four patches (4, 16)."""
    return patches.view(2, 2, 4, 4).transpose(1, 2).reshape(8, 8)


def show() -> Iterator[str | tuple]:
    torch.manual_seed(0)
    x, memory = torch.randn(32, 20, 10), torch.randn(32, 7, 14)
    two, wide = MultiHeadAttention(16, 2, query_size=10), MultiHeadAttention(16, 2, query_size=10, head_size=16)
    cross = MultiHeadAttention(16, 2, query_size=10, key_size=14)
    traced = [two.trace(x), wide.trace(x), cross.trace(x, memory)]
    yield (
        "X has 32 sequences of 20 tokens of 10 channels. Three layers with 2 heads make C = 16 channels of them. Wide "
        "heads have D = C channels each, not C / H. The last layer reads keys and values from 7 tokens of 14 channels: "
        "lengths can differ.\n"
    )
    yield "              D = C / H = 8       wide heads, D = 16  cross-attention"
    for name in traced[0]:
        yield f"  {name:12}{''.join(f'{tuple(values[name].shape)!s:20}' for values in traced)}".rstrip()
    n_parameters = [sum(p.numel() for p in layer.parameters()) for layer in (two, wide, cross)]
    yield f"  parameters  {''.join(f'{n:<20,}' for n in n_parameters)}".rstrip() + "\n"
    n = sum(p.numel() for p in MultiHeadAttention(16, 2, query_size=10, bias=True).parameters())
    yield f"736 = 3 x 10 x 16 + 16 x 16: three maps and the last. With 16 biases in each: {n:,}."
    equal = "the same" if torch.allclose(one_head_at_a_time(two, x), two(x), atol=1e-6) else "DIFFERENT results"
    yield f"One head at a time, each with 8 columns of Wq, Wk and Wv, gives {equal}.\n"

    equal_scores = MultiHeadAttention(16, 1, query_size=10, score=uniform)
    padding, look_ahead = torch.tensor([[1, 1, 1, 1], [0, 1, 1, 0]]), causal_mask(4, 4).int()
    yield "padding mask (B, S): the second sequence is filled up at both ends", padding
    yield "look-ahead mask (T, S): each query sees itself and the past", look_ahead
    weights = equal_scores.trace(x[:2, :4], padding_mask=padding, attention_mask=look_ahead)["weights"]
    yield "Second sequence, equal scores, both masks: the first query sees no key", weights[1, 0]
    memory_mask = torch.tensor([[1, 1, 0], [1, 1, 0], [0, 1, 1], [0, 1, 1]])
    yield "memory mask (T, S): 4 queries, and 3 keys of another sequence", memory_mask
    weights = equal_scores.trace(x[:1, :4], x[:1, 4:7], memory_mask=memory_mask)["weights"]
    yield "Weights under this mask, for equal scores", weights[0, 0]

    a = torch.tensor([PATCHES], dtype=torch.float64)  # (1, 4, 16)
    unchanged, names = torch.eye(16, dtype=torch.float64), ("X1", "X2", "X3", "X4")
    picture = one_head(a, unchanged, unchanged, unchanged)
    yield "A picture: patches X1 and X2 above X3 and X4", join_patches(a[0])
    yield "a: each patch, row by row. The maps change nothing: Q = K = V = a", a[0], names
    yield "scores = Q K^T / sqrt(16): one row per query, one column per key", picture["scores"][0], names
    yield "weights = softmax(scores), row by row", picture["weights"][0], names
    mixed = join_patches(picture["output"][0])
    yield "output = weights V, as a picture: each patch is a mixture of patches", mixed
