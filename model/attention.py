"""Attention: each query is compared with the keys, and the result is an average of the values weighted by the match.

`attend` is the definition, and `fused` the same by PyTorch's kernels. `SelfAttention` is the layer of the GPT.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.cache import LayerCache
from model.config import LayerShape, ModelConfig
from model.norm import QueryKeyNorm
from model.positions import Places
from model.scoring import Score, make_score, scaled_dot

# In bfloat16, training on a CPU is faster with the T x S weights in memory up to this number of keys.
LONGEST_EXPLICIT = 512


def causal_mask(T: int, S: int, device: torch.device | None = None) -> Tensor:
    """Return the causal mask (T, S), True where visible: the T queries are the last of the S positions."""
    return torch.ones(T, S, dtype=torch.bool, device=device).tril(diagonal=S - T)


def masked_softmax(scores: Tensor, *, visible: Tensor | None = None, causal: bool = False) -> Tensor:
    """Return weights (..., T, S) that sum to 1 over the visible keys, from scores (..., T, S).

    visible: boolean, broadcasts to the scores' shape; False hides a key. causal: hide the keys after the query's own
    position, too. A query must see a key: a softmax over no keys is NaN.
    """
    if causal:
        past = causal_mask(scores.size(-2), scores.size(-1), scores.device)
        visible = past if visible is None else visible & past
    if visible is not None:
        scores = scores.masked_fill(~visible, float("-inf"))
    return F.softmax(scores, dim=-1)


def attention_weights(
    q: Tensor,
    k: Tensor,
    *,
    score: Score = scaled_dot,
    causal: bool = False,
    bias: Tensor | None = None,
) -> Tensor:
    """Return softmax(score(q, k) + bias) over the keys, (..., T, S). Arguments: see `attend`."""
    scores = score(_join_groups(q, k), k).reshape(*q.shape[:-1], k.size(-2))  # (..., T, S)
    if bias is not None:
        scores = scores + bias  # in the bias's precision: bfloat16 would round small biases away
    return masked_softmax(scores, causal=causal).to(q.dtype)


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    score: Score = scaled_dot,
    causal: bool = False,
    bias: Tensor | None = None,
    dropout: float = 0.0,
    form: str = "auto",
) -> Tensor:
    """Return the sum of the values, weighted by softmax(score(q, k)) ("Attention Is All You Need", 2017, eq. 1).

    q (..., T, D), k (..., S, D), v (..., S, D') -> (..., T, D'), with the same leading dimensions. If these are batch
    and heads, q (B, H, T, D) may have more heads than k and v (B, K, S, D): each key head serves H / K neighbouring
    query heads, without a copy (grouped queries: Ainslie et al., 2023; a single key head: Shazeer, 2019).

    causal: hide the keys after the query's own position. bias: added to the scores, broadcasts to (..., T, S). dropout:
    probability of dropping a weight. form: "explicit" computes the definition, the last lines of this function; "fused"
    calls PyTorch's fused kernels, which know `scaled_dot` only; "auto" chooses the fastest. All give the same result;
    the fused kernels round a bias to q's type.
    """
    if score is scaled_dot and (form == "fused" or (form == "auto" and fused_is_faster(q, k, dropout))):
        return fused(q, k, v, causal, bias, dropout)
    weights = attention_weights(q, k, score=score, causal=causal, bias=bias)
    weights = F.dropout(weights, dropout)
    return (_join_groups(weights, v) @ v).reshape(*q.shape[:-1], v.size(-1))


def fused_is_faster(q: Tensor, k: Tensor, dropout: float) -> bool:
    """Return whether the fused kernels were measured to be the fastest form for these tensors.

    They are, with two exceptions on a CPU: their backward pass in bfloat16 takes 2 to 4 times as long at short lengths,
    and with dropout they have no fast path.
    """
    slow_backward = q.requires_grad and q.dtype == torch.bfloat16 and k.size(-2) <= LONGEST_EXPLICIT
    return q.device.type != "cpu" or not (slow_backward or dropout)


def fused(q: Tensor, k: Tensor, v: Tensor, causal: bool, bias: Tensor | None, dropout: float) -> Tensor:
    """Compute `attend` by PyTorch's fused kernels, which do not store T x S weights unless there is a T x S bias."""
    T, S = q.size(-2), k.size(-2)
    grouped = q.ndim == 4 and q.size(1) != k.size(1)
    mask, is_causal = None, causal and T > 1  # a single query, the last position, sees all keys
    # PyTorch's is_causal aligns the first query with the first key, and allows no bias.
    if is_causal and (T < S or bias is not None):
        mask, is_causal = causal_mask(T, S, q.device), False
    if bias is not None:
        bias = bias.to(q.dtype)
        mask = bias if mask is None else bias.masked_fill(~mask, float("-inf"))
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=is_causal, enable_gqa=grouped
    )


def _join_groups(x: Tensor, k: Tensor) -> Tensor:
    """Reshape x (B, H, T, n) to (B, K, H / K * T, n): the queries that share one of k's K heads in one matrix."""
    if x.ndim != 4 or x.size(1) == k.size(1):
        return x
    B, H, T, n = x.shape
    return x.reshape(B, k.size(1), H // k.size(1) * T, n)


class SelfAttention(nn.Module):
    """All heads of a layer together, with one output projection: (B, T, C) -> (B, T, C).

    H query heads share K heads of keys and values (`model.n_kv_head`), each of which serves H / K neighbours:

                K = H = 4       K = 2: grouped queries     K = 1: one shared key head
        k, v    ○  ○  ○  ○      ○     ○                    ○
                │  │  │  │      ├──┐  ├──┐                 ├──┬──┬──┐
        q       ○  ○  ○  ○      ○  ○  ○  ○                 ○  ○  ○  ○
    """

    def __init__(self, config: ModelConfig, layer: LayerShape):
        super().__init__()
        self.n_head, self.n_kv_head, self.head_size = H, K, D = layer.n_head, layer.n_kv_head, layer.head_size
        self.dropout, self.form = config.dropout, config.attention
        self.score = make_score(config.score, D)
        # The other scoring functions have no scale, or learn their own.
        self.qk_norm = QueryKeyNorm(layer, learned=config.score == "scaled_dot") if config.qk_norm else None
        self.qkv = nn.Linear(config.n_embd, (H + 2 * K) * D, bias=config.bias)
        self.proj = nn.Linear(H * D, config.n_embd, bias=config.bias)

    def forward(self, x: Tensor, places: Places, cache: LayerCache | None = None) -> Tensor:
        """Attend from x (B, T, C) at positions `places` to x itself and to the earlier positions in the cache."""
        B, T, _ = x.shape
        H, K, D = self.n_head, self.n_kv_head, self.head_size
        qk, v = self.qkv(x).view(B, T, H + 2 * K, D).split((H + K, K), dim=2)  # (B, T, H + K, D), (B, T, K, D)
        if self.qk_norm is not None:
            qk = self.qk_norm(qk)
        q, k = places.position_embedding.rotate(qk, places).split((H, K), dim=2)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)  # (B, H, T, D), (B, K, T, D), (B, K, T, D)
        if cache is not None:
            k, v = cache.update(k, v, places.index)  # (B, K, S, D)
        bias = places.position_embedding.bias(H, places, k.size(2))
        options: dict[str, Any] = {"score": self.score, "causal": True, "bias": bias}
        if places.weights is not None:
            places.weights.append(attention_weights(q, k, **options))  # (B, H, T, S)
        p = self.dropout if self.training else 0.0
        y = attend(q, k, v, **options, dropout=p, form=self.form)  # (B, H, T, D)
        y = y.transpose(1, 2).flatten(2)  # (B, T, H D): the heads side by side
        return F.dropout(self.proj(y), self.dropout, self.training)
