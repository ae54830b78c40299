"""Attention: each query is compared with the keys, and the result is an average of the values weighted by the match.

`attend` is the definition, and the only place that selects a faster implementation with the same result.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from model.dropout import dropout as drop
from model.kernels import hand_written
from model.scoring import Score, check_widths, scaled_dot

# In bfloat16, training on a CPU is faster with the T x S weights in memory up to this number of keys.
LONGEST_EXPLICIT = 512


def causal_mask(T: int, S: int, device: torch.device | None = None) -> Tensor:
    """Return a lower-triangular mask of T queries, the last positions, and S keys: (T, S), True where visible."""
    return torch.ones(T, S, dtype=torch.bool, device=device).tril(diagonal=S - T)


def masked_softmax(scores: Tensor, *, visible: Tensor | None = None, causal: bool = False) -> Tensor:
    """Return weights (..., T, S) that sum to 1 over the visible keys, from scores (..., T, S).

    visible: broadcasts to the scores' shape; 0 or False hides a key. causal: hide the keys after the query's own
    position, too. A query that sees no key gets weights of zero, and gradients of zero.
    """
    if causal:
        past = causal_mask(scores.size(-2), scores.size(-1), scores.device)
        if visible is None and scores.size(-2) <= scores.size(-1):  # every query sees itself: no row is empty
            return F.softmax(scores.masked_fill(~past, float("-inf")), dim=-1)
        visible = past if visible is None else (visible != 0) & past
    if visible is None:
        return F.softmax(scores, dim=-1)
    hidden = visible == 0
    weights = F.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1)
    # A softmax over no keys is NaN. This fill removes it here, and the fill above removes it from the gradients.
    return weights.masked_fill(hidden.all(dim=-1, keepdim=True), 0.0)


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
) -> Tensor:
    """Return the sum of the values, weighted by softmax(score(q, k)) ("Attention Is All You Need", 2017, eq. 1).

    q (..., T, D), k (..., S, D), v (..., S, D') -> (..., T, D'), with the same leading dimensions. If these are batch
    and heads, q (B, H, T, D) may have more heads than k and v (B, K, S, D): each key head serves H / K neighbouring
    query heads, without a copy (grouped queries: Ainslie et al., 2023; a single key head: Shazeer, 2019).

    visible, causal: see `masked_softmax`. bias: added to the scores, broadcasts to (..., T, S). dropout: probability of
    dropping a weight. form: "explicit" computes the last two lines of this function, "fused" calls PyTorch's fused
    kernels, "auto" chooses the fastest implementation. All give the same result; the fused kernels round a bias to q's
    type.

    Raises ValueError if the shapes do not fit together, if dropout or form is invalid, or if form is "fused" and score
    is not `scaled_dot`.
    """
    _check_shapes(q, k, v, visible, causal, bias)
    if score is scaled_dot:
        check_widths(q, k)
    simply_causal = causal and visible is None and bias is None
    implementation = _choose(form, q, k, score, simply_causal=simply_causal, dropout=dropout)
    if implementation == "fused":
        return _fused(q, k, v, visible, causal, bias, dropout)
    if implementation == "hand-written backward":
        return hand_written.causal_attention(q, k, v, dropout)
    weights = drop(attention_weights(q, k, score=score, visible=visible, causal=causal, bias=bias), dropout)
    return (_join_groups(weights, v) @ v).reshape(*q.shape[:-1], v.size(-1))


def _choose(form: str, q: Tensor, k: Tensor, score: Score, *, simply_causal: bool, dropout: float) -> str:
    """Return the name of the implementation to use; "auto" selects the one that was measured to be fastest.

    The fused kernels are the fastest, with two exceptions on a CPU: their backward pass in bfloat16 takes 2 to 4 times
    as long at short lengths, and with dropout they have no fast path. If all queries are causal and nothing else is
    hidden or added (simply_causal), a hand-written backward pass is the fastest in these two cases.
    """
    if form not in ("auto", "explicit", "fused"):
        raise ValueError(f"form={form!r} must be auto, explicit or fused")
    if form == "fused" and score is not scaled_dot:
        raise ValueError("form='fused' computes scaled_dot scores only; use form='auto'")
    if form != "auto":
        return form
    if score is not scaled_dot:
        return "explicit"
    T, S = q.size(-2), k.size(-2)
    slow_backward = q.requires_grad and q.dtype == torch.bfloat16 and S <= LONGEST_EXPLICIT
    if q.device.type != "cpu" or not (slow_backward or dropout):
        return "fused"
    return "hand-written backward" if simply_causal and T == S and hand_written.is_faster(q) else "explicit"


def _fused(
    q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None, causal: bool, bias: Tensor | None, dropout: float
) -> Tensor:
    """Compute `attend` with PyTorch's fused kernels, which do not store T x S weights unless there is a T x S bias."""
    T, S = q.size(-2), k.size(-2)
    grouped = q.ndim == 4 and q.size(1) != k.size(1)
    # PyTorch's is_causal aligns the first query with the first key. A single query, the last position, sees all keys.
    if visible is None and bias is None and not (causal and 1 < T < S):
        return F.scaled_dot_product_attention(
            q, k, v, dropout_p=dropout, is_causal=causal and T > 1, enable_gqa=grouped
        )
    mask = causal_mask(T, S, q.device) if causal else None
    blind = None  # the queries that see no key
    if visible is not None:
        visible = torch.atleast_2d(visible if visible.dtype == torch.bool else visible != 0)
        mask = visible if mask is None else mask & visible
        blind = ~mask.any(dim=-1, keepdim=True)
        mask = mask | blind  # a softmax over no keys is NaN
    if bias is not None:
        bias = torch.atleast_2d(bias.to(q.dtype))
        mask = bias if mask is None else bias.masked_fill(~mask, float("-inf"))
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, enable_gqa=grouped)
    return y if blind is None else y.masked_fill(blind, 0.0)


def _join_groups(x: Tensor, k: Tensor) -> Tensor:
    """Reshape x (B, H, T, n) to (B, K, H / K * T, n): the queries that share one of k's K heads in one matrix."""
    if x.ndim != 4 or x.size(1) == k.size(1):
        return x
    B, H, T, n = x.shape
    return x.reshape(B, k.size(1), H // k.size(1) * T, n)


def _check_shapes(q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None, causal: bool, bias: Tensor | None) -> None:
    *heads, T, _ = q.shape
    *key_heads, S, _ = k.shape
    if key_heads != heads:
        grouped = q.ndim == k.ndim == 4 and key_heads[0] == heads[0] and key_heads[1] and heads[1] % key_heads[1] == 0
        if not grouped:
            raise ValueError(
                f"k has shape {tuple(k.shape)}; expected the leading dimensions {tuple(heads)} of q, or a number "
                "of heads that divides q's"
            )
    if v.shape[:-1] != k.shape[:-1]:
        raise ValueError(f"v has shape {tuple(v.shape)}; expected the leading dimensions {tuple(k.shape[:-1])} of k")
    if causal and T > S:
        raise ValueError(f"q has shape {tuple(q.shape)}; causal attention to {S} keys allows at most {S} queries")
    for name, x in (("visible", visible), ("bias", bias)):
        if x is not None and (x.ndim > q.ndim or not _broadcasts(x.shape, (*heads, T, S))):
            raise ValueError(f"{name} has shape {tuple(x.shape)}; it must broadcast to {(*heads, T, S)}")


def _broadcasts(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    return all(n in (1, m) for n, m in zip(reversed(shape), reversed(target), strict=False))
