"""Chapter 5, continued: how do maps, heads and masks make one layer? `trace` shows the order (Vaswani et al., 2017).

Self-attention gives the layer one sequence; cross-attention takes keys and values from another. Nothing else differs.

Next: `chapter5c_blocks.py` builds an encoder and a decoder from this layer.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from model.attention import masked_softmax
from model.scoring import Score, scaled_dot
from model.textbook.chapter4_heads import join_heads, split_heads
from model.textbook.chapter5a_masks import combine_masks, require_keywords


class MultiHeadAttention(nn.Module):
    """Several heads side by side and one output map, with a result of `width` channels.

    Each head compares queries of head_size channels (by default width / n_head) with keys of key_head_size, which only
    some scores allow to differ, and sums values of value_head_size; head_size=width gives wide heads. The inputs have
    query_size, key_size and value_size channels, by default width. dropout applies to the weights.
    """

    def __init__(
        self,
        width: int,
        n_head: int,
        *,
        head_size: int | None = None,
        key_head_size: int | None = None,
        value_head_size: int | None = None,
        query_size: int | None = None,
        key_size: int | None = None,
        value_size: int | None = None,
        bias: bool = False,
        output_bias: bool = False,
        output_map: bool = True,
        score: Score = scaled_dot,
        dropout: float = 0.0,
    ):
        super().__init__()
        if head_size is None and width % n_head:
            raise ValueError(f"width={width} cannot be split into n_head={n_head} heads; set head_size")
        head_size = head_size or width // n_head
        self.n_head, self.score, self.dropout = n_head, score, dropout
        self.query = nn.Linear(query_size or width, n_head * head_size, bias=bias)
        self.key = nn.Linear(key_size or width, n_head * (key_head_size or head_size), bias=bias)
        self.value = nn.Linear(value_size or width, n_head * (value_head_size or head_size), bias=bias)
        self.proj = nn.Linear(self.value.out_features, width, bias=output_bias) if output_map else nn.Identity()

    def forward(self, *inputs: Tensor, **masks) -> Tensor:
        """Return the output (B, T, width) for one to three inputs; see `trace`."""
        return self.trace(*inputs, **masks)["output"]

    def trace(self, queries: Tensor, keys=None, values=None, *misplaced, causal=False, **masks) -> dict[str, Tensor]:
        """Attend from queries (B, T, query_size) to keys (B, S, key_size) and values (B, S, value_size).

        keys default to the queries, values to the keys. causal hides later keys; masks: see `combine_masks`.
        Returns every value by name: X, the queries; Q (B, H, T, D), K and V (B, H, S, ...); scores before masks and
        weights (B, H, T, S); heads (B, H, T, ...); output (B, T, width).
        """
        require_keywords(misplaced, "padding_mask", "attention_mask", "memory_mask")
        keys = queries if keys is None else keys
        values = keys if values is None else values
        inputs = {"queries": (self.query, queries), "keys": (self.key, keys), "values": (self.value, values)}
        for name, (linear, x) in inputs.items():
            if not x.is_floating_point() or x.ndim != 3 or x.size(-1) != linear.in_features:
                expected = f"floating-point numbers (B, length, {linear.in_features}). Pass masks by keyword"
                raise ValueError(f"{name} has shape {tuple(x.shape)} and type {x.dtype}; expected {expected}")
        if values.shape[:2] != keys.shape[:2]:
            raise ValueError(f"values has shape {tuple(values.shape)}; expected (B, S) = {tuple(keys.shape[:2])} first")
        q, k, v = (split_heads(linear(x), self.n_head) for linear, x in inputs.values())
        scores = self.score(q, k)  # (B, H, T, S)
        visible = combine_masks(shape=(q.size(0), q.size(2), k.size(2)), **masks)
        weights = masked_softmax(scores, visible=visible, causal=causal)
        heads = F.dropout(weights, self.dropout, self.training) @ v  # (B, H, T, D')
        y = self.proj(join_heads(heads))
        return {"X": queries, "Q": q, "K": k, "V": v, "scores": scores, "weights": weights, "heads": heads, "output": y}
