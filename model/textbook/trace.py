"""Every value inside an attention layer, from the input to the result."""

from torch import Tensor

from model.attention import masked_softmax
from model.scoring import dot, scaled_dot
from model.textbook.multi_head import MultiHeadAttention, combine_masks, join_heads


def trace_attention(
    layer: MultiHeadAttention,
    queries: Tensor,
    keys: Tensor | None = None,
    values: Tensor | None = None,
    *,
    causal: bool = False,
    **masks: Tensor | None,
) -> dict[str, Tensor | int]:
    """Return every intermediate of `layer(queries, keys, values, ...)` by name, in the order of computation.

    X (N, T, query_size), the input of the queries; Q (N, H, T, D), K (N, H, S, D) and V (N, H, S, D'); for scaled dot
    products, raw scores Q K^T (N, H, T, S) and d_k = D; scores (N, H, T, S) before masks; weights (N, H, T, S); heads
    (N, H, T, D'), each head's weighted sum of values; output (N, T, width) of the layer, without dropout.
    """
    q, k, v = layer.project(queries, keys, values)
    scores = layer.score(q, k)
    visible = combine_masks(shape=(q.size(0), q.size(2), k.size(2)), **masks)
    weights = masked_softmax(scores, visible=visible, causal=causal)
    heads = weights @ v
    before_scaling = {"raw scores": dot(q, k), "d_k": q.size(-1)} if layer.score is scaled_dot else {}
    return {
        "X": queries,
        "Q": q,
        "K": k,
        "V": v,
        **before_scaling,
        "scores": scores,
        "weights": weights,
        "heads": heads,
        "output": layer.proj(join_heads(heads)),
    }
