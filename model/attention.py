"""Attention: each query is compared with the keys, and the result is an average of the values weighted by the match.

`attend` is the definition; `model.kernels.attention` computes the same faster. `SelfAttention` is the layer of the GPT.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.cache import LayerCache
from model.config import LayerShape, ModelConfig
from model.dropout import dropout as drop
from model.kernels import hand_written
from model.kernels.attention import choose_form, fused
from model.norm import QueryKeyNorm
from model.positions import Places
from model.scoring import Score, make_score, scaled_dot


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
    visible: Tensor | None = None,
    causal: bool = False,
    bias: Tensor | None = None,
) -> Tensor:
    """Return softmax(score(q, k) + bias) over the visible keys, (..., T, S). Arguments: see `attend`."""
    scores = score(_join_groups(q, k), k).reshape(*q.shape[:-1], k.size(-2))  # (..., T, S)
    if bias is not None:
        scores = scores + bias  # in the bias's precision: bfloat16 would round small biases away
    return masked_softmax(scores, visible=visible, causal=causal).to(q.dtype)


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    score: Score = scaled_dot,
    visible: Tensor | None = None,
    causal: bool = False,
    bias: Tensor | None = None,
    dropout: float = 0.0,
    form: str = "auto",
    tap: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Return the sum of the values, weighted by softmax(score(q, k)) ("Attention Is All You Need", 2017, eq. 1).

    q (..., T, D), k (..., S, D), v (..., S, D') -> (..., T, D'), with the same leading dimensions. If these are batch
    and heads, q (B, H, T, D) may have more heads than k and v (B, K, S, D): each key head serves H / K neighbouring
    query heads, without a copy (grouped queries: Ainslie et al., 2023; a single key head: Shazeer, 2019).

    visible, causal: see `masked_softmax`. bias: added to the scores, broadcasts to (..., T, S). dropout: probability of
    dropping a weight. form: "explicit" computes the definition, the last lines of this function; "fused" calls
    PyTorch's fused kernels, which know `scaled_dot` only; "auto" chooses the fastest. All give the same result; the
    fused kernels round a bias to q's type. tap: receives the weights of the explicit form, and returns those to use.
    """
    form = choose_form(form, q, k, score, only_causal=causal and visible is None and bias is None, dropout=dropout)
    if form == "fused":
        return fused(q, k, v, visible, causal, bias, dropout)
    if form == "hand-written":
        return hand_written.causal_attention(q, k, v, dropout)
    weights = attention_weights(q, k, score=score, visible=visible, causal=causal, bias=bias)
    weights = drop(tap(weights) if tap else weights, dropout)
    return (_join_groups(weights, v) @ v).reshape(*q.shape[:-1], v.size(-1))


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
        self.weights = nn.Identity()  # with form="explicit", the attention weights pass through it, for hooks
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
        visible, bias = places.visible, places.position_embedding.bias(H, places, k.size(2))
        options: dict[str, Any] = {"score": self.score, "visible": visible, "causal": visible is None, "bias": bias}
        if places.weights is not None:
            places.weights.append(attention_weights(q, k, **options))  # (B, H, T, S)
        p = self.dropout if self.training else 0.0
        y = attend(q, k, v, **options, dropout=p, form=self.form, tap=self.weights)  # (B, H, T, D)
        y = y.transpose(1, 2).flatten(2)  # (B, T, H D): the heads side by side
        return drop(self.proj(y), self.dropout, training=self.training)
