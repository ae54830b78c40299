"""What happens inside attention: a layer value by value, a GPT weight by weight."""

from collections.abc import Iterator

from torch import Tensor

from model.attention import MultiHeadAttention, combine_masks, join_heads, masked_softmax
from model.gpt import GPT


def attention_weights(model: GPT, ids: Tensor) -> Iterator[Tensor]:
    """How the heads weigh the characters ids (B, T) when the model reads them: (B, H, T, T), layer by layer."""
    x, rotations = model.embed(ids)
    for block in model.blocks:
        rotation = rotations.get(block.attention.head_size)
        yield block.attention.weights(block.attention_norm(x), rotation)
        x = block(x, rotation)


def trace_attention(
    layer: MultiHeadAttention,
    queries: Tensor,
    keys: Tensor | None = None,
    values: Tensor | None = None,
    *,
    causal: bool = False,
    **masks: Tensor | None,
) -> dict[str, Tensor]:
    """Every intermediate of `layer(queries, keys, values, ...)` by its name, in the order in which it comes to be.

    q, k, v (N, H, length, D) each; scores (N, H, T, S) before masking; weights (N, H, T, S); heads (N, H, T, D), what
    each head takes from its values; result (N, T, width), that of the layer outside training.
    """
    keys = queries if keys is None else keys
    q = layer.queries(queries)
    k, v = layer.keys_and_values(keys, keys if values is None else values)
    scores = layer.score(q, k)
    visible = combine_masks(**masks, shape=(q.size(0), q.size(2), k.size(2)))
    weights = masked_softmax(scores, visible=visible, causal=causal)
    heads = weights @ v
    result = layer.proj(join_heads(heads))
    return {
        "queries": queries,
        "q": q,
        "k": k,
        "v": v,
        "scores": scores,
        "weights": weights,
        "heads": heads,
        "result": result,
    }
