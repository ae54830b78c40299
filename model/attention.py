"""Attention: each query is compared with the keys, and the result is an average of the values weighted by the match.

This is the definition; `model.kernels.attention` computes the same faster.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from model.dropout import dropout as drop
from model.kernels import hand_written
from model.kernels.attention import choose_form, fused
from model.scoring import Score, check_widths, scaled_dot


def causal_mask(T: int, S: int, device: torch.device | None = None) -> Tensor:
    """Return the causal mask (T, S), True where visible: the T queries are the last of the S positions."""
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
    tap: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Return the sum of the values, weighted by softmax(score(q, k)) ("Attention Is All You Need", 2017, eq. 1).

    q (..., T, D), k (..., S, D), v (..., S, D') -> (..., T, D'), with the same leading dimensions. If these are batch
    and heads, q (B, H, T, D) may have more heads than k and v (B, K, S, D): each key head serves H / K neighbouring
    query heads, without a copy (grouped queries: Ainslie et al., 2023; a single key head: Shazeer, 2019).

    visible, causal: see `masked_softmax`. bias: added to the scores, broadcasts to (..., T, S). dropout: probability of
    dropping a weight. form: "explicit" computes the definition, the last lines of this function; "fused" calls
    PyTorch's fused kernels; "auto" chooses the fastest. All give the same result; the fused kernels round a bias to q's
    type. tap: receives the weights of the explicit form, and returns those to use.

    Raises ValueError if the shapes do not fit together, if form is invalid, or if form is "fused" and score is not
    `scaled_dot`.
    """
    _check_shapes(q, k, v, score, visible, causal, bias)
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


def _check_shapes(
    q: Tensor, k: Tensor, v: Tensor, score: Score, visible: Tensor | None, causal: bool, bias: Tensor | None
) -> None:
    """Raise ValueError if the arguments of `attend` do not fit together."""
    if score is scaled_dot:
        check_widths(q, k)
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
