"""Attention: queries look at keys, and take from the values by how well they match.

`attend` is the definition; `Head` and `MultiHeadAttention` put linear maps around it. The GPT's own layer, in
`self_attention.py`, stands on the same functions.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model import by_hand
from model.dropout import Dropout
from model.dropout import dropout as drop
from model.scoring import Score, scaled_dot

# Number of keys above which a CPU is no longer faster with the explicit form's T x S weights in memory.
LONGEST_EXPLICIT = 512


def causal_mask(T: int, S: int, device: torch.device | None = None) -> Tensor:
    """Lower-triangular (T, S) mask, True where a query may look: the last T of S positions each see their past."""
    return torch.ones(T, S, dtype=torch.bool, device=device).tril(diagonal=S - T)


def masked_softmax(scores: Tensor, *, visible: Tensor | None = None, causal: bool = False) -> Tensor:
    """Weights (..., T, S) that sum to 1 over what is visible, from scores (..., T, S).

    visible: broadcast to the scores' shape, False or 0 where a key is hidden. A query from which everything is hidden
    gets weights of zero, and gradients of zero. causal: keys after the query's own position are hidden too.
    """
    if causal:
        past = causal_mask(*scores.shape[-2:], device=scores.device)
        if visible is None:  # every query sees itself: none is blind
            return F.softmax(scores.masked_fill(past == 0, float("-inf")), dim=-1)
        visible = (visible != 0) & past
    if visible is None:
        return F.softmax(scores, dim=-1)
    hidden = visible == 0
    blind = hidden.all(dim=-1, keepdim=True)
    weights = F.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1)
    # A softmax over nothing is NaN. It ends here and, going backwards, where the scores were filled.
    return weights.masked_fill(blind, 0.0)


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    score: Score = scaled_dot,
    visible: Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
) -> Tensor:
    """Attention pooling: the sum of the values, weighted by softmax(score(q, k)).

    q (..., T, D), k (..., S, D), v (..., S, D') -> (..., T, D'). visible and causal: see `masked_softmax`. Dropout is
    applied to the weights, with that probability. This form is the specification; the fused one equals it.

    Raises ValueError where shapes do not fit together.
    """
    _check_shapes(q, k, v, visible, causal)
    weights = masked_softmax(score(q, k), visible=visible, causal=causal)
    return drop(weights, dropout) @ v


def attend_fused(
    q: Tensor, k: Tensor, v: Tensor, *, visible: Tensor | None = None, causal: bool = False, dropout: float = 0.0
) -> Tensor:
    """`attend` with scaled dot products in PyTorch's fused kernels, which never hold the T x S weights."""
    _check_shapes(q, k, v, visible, causal)
    T, S = q.size(-2), k.size(-2)
    if visible is None and not (causal and 1 < T < S):
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=causal and T > 1)
    visible = torch.ones(1, S, dtype=torch.bool, device=q.device) if visible is None else visible != 0
    if causal:
        visible = visible & causal_mask(T, S, q.device)
    blind = ~visible.any(dim=-1, keepdim=True)
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=visible | blind, dropout_p=dropout)
    return y.masked_fill(blind, 0.0)


def choose_form(
    wanted: str, score: Score, q: Tensor, k: Tensor, *, dropout: float = 0.0, simply_causal: bool = False
) -> str:
    """The form of attention to compute: "explicit", "fused" or "by hand"; `auto` goes by what was measured.

    The fused kernels know scaled dot products alone. They are the faster ones but for two cases on a CPU: their
    backward pass in bfloat16 costs 2 to 4 times as much at short lengths, and with dropout they have no fast path.
    Where as many queries as keys see their past and nothing is hidden besides (simply_causal), the explicit form with
    its backward pass written out is the fastest of all in these cases.
    """
    if score is not scaled_dot:
        return "explicit"
    if wanted != "auto":
        return wanted
    if q.device.type != "cpu":
        return "fused"
    slow_backward = q.requires_grad and q.dtype == torch.bfloat16 and k.size(-2) <= LONGEST_EXPLICIT
    if not slow_backward and not dropout:
        return "fused"
    return "by hand" if simply_causal and by_hand.worthwhile(q) else "explicit"


def combine_masks(
    padding_mask: Tensor | None = None,
    attention_mask: Tensor | None = None,
    memory_mask: Tensor | None = None,
    *,
    shape: tuple[int, int, int],
) -> Tensor | None:
    """What is visible to every head, (N, 1, T, S) or less, where all masks agree; None where there is none.

    padding_mask (N, S) hides keys of a sequence; attention_mask (T, S), in self-attention, and memory_mask (T, S), in
    cross-attention, hide keys from a query. In each, 0 or False means hidden. shape: (N, T, S).

    Raises ValueError where a mask has another shape.
    """
    N, T, S = shape
    visible = None
    for name, mask, expected in (
        ("padding_mask", padding_mask, (N, S)),
        ("attention_mask", attention_mask, (T, S)),
        ("memory_mask", memory_mask, (T, S)),
    ):
        if mask is None:
            continue
        if mask.shape != expected:
            letters = "(N, S)" if name == "padding_mask" else "(T, S)"
            raise ValueError(f"{name} has shape {tuple(mask.shape)}; expected {letters} = {expected}")
        mask = mask[:, None, None, :] != 0 if name == "padding_mask" else mask != 0
        visible = mask if visible is None else visible & mask
    return visible


def check_input(name: str, x: Tensor, width: int) -> None:
    """Raises ValueError where x is not (N, length, width)."""
    if x.ndim != 3 or x.size(-1) != width:
        raise ValueError(f"{name} has shape {tuple(x.shape)}; expected (N, length, {width})")


def split_heads(x: Tensor, n_head: int) -> Tensor:
    """(N, T, H D) -> (N, H, T, D). Raises ValueError where the width is no multiple of the number of heads."""
    if x.size(-1) % n_head:
        raise ValueError(f"a width of {x.size(-1)} cannot be split into n_head={n_head} heads of one size")
    return x.unflatten(-1, (n_head, -1)).transpose(-3, -2)


def join_heads(x: Tensor) -> Tensor:
    """(N, H, T, D) -> (N, T, H D): the heads side by side."""
    return x.transpose(-3, -2).flatten(-2)


class Head(nn.Module):
    """One head of causal self-attention: (B, T, C) -> (B, T, D).

    The textbook statement of what each head of the GPT's layer does; nothing in the GPT runs it.
    """

    def __init__(self, n_embd: int, head_size: int, block_size: int, *, dropout: float = 0.0, bias: bool = False):
        super().__init__()
        self.query = nn.Linear(n_embd, head_size, bias=bias)
        self.key = nn.Linear(n_embd, head_size, bias=bias)
        self.value = nn.Linear(n_embd, head_size, bias=bias)
        self.dropout = Dropout(dropout)
        self.register_buffer("tril", torch.tril(torch.ones(block_size, block_size)), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        check_input("x", x, self.query.in_features)
        T = x.size(1)
        q, k, v = self.query(x), self.key(x), self.value(x)  # (B, T, D) each
        scores = q @ k.transpose(-2, -1) * k.size(-1) ** -0.5  # (B, T, T)
        scores = scores.masked_fill(self.tril[:T, :T] == 0, float("-inf"))
        weights = self.dropout(F.softmax(scores, dim=-1))
        return weights @ v  # (B, T, D)


class MultiHeadAttention(nn.Module):
    """Several heads that attend side by side, for self- and for cross-attention ("Attention Is All You Need", 3.2.2).

    width: of the result, split among n_head heads; head_size makes a head's width free of it (head_size=width: wide
    heads). query_size, key_size, value_size: widths of the inputs, by default `width`. Without the output map, the
    result is the heads side by side, n_head * head_size wide.

    Raises ValueError where the width cannot be split.
    """

    def __init__(
        self,
        width: int,
        n_head: int,
        *,
        head_size: int | None = None,
        query_size: int | None = None,
        key_size: int | None = None,
        value_size: int | None = None,
        bias: bool = False,
        output_map: bool = True,
        score: Score = scaled_dot,
        dropout: float = 0.0,
    ):
        super().__init__()
        if head_size is None and width % n_head:
            raise ValueError(f"width={width} cannot be split into n_head={n_head} heads; set head_size")
        inner = n_head * (head_size or width // n_head)
        self.n_head, self.score, self.dropout = n_head, score, dropout
        self.query = nn.Linear(query_size or width, inner, bias=bias)
        self.key = nn.Linear(key_size or width, inner, bias=bias)
        self.value = nn.Linear(value_size or width, inner, bias=bias)
        self.proj = nn.Linear(inner, width, bias=bias) if output_map else nn.Identity()

    def forward(
        self, queries: Tensor, keys: Tensor | None = None, values: Tensor | None = None, **options: Tensor | bool | None
    ) -> Tensor:
        """Attention of queries (N, T, query_size) to keys (N, S, key_size) and values (N, S, value_size).

        keys default to the queries (self-attention), values to the keys. Options: see `attend_to`.
        Raises ValueError where an input has another width or length.
        """
        q = self.queries(queries)
        keys = queries if keys is None else keys
        return self.attend_to(q, *self.keys_and_values(keys, keys if values is None else values), **options)

    def queries(self, queries: Tensor) -> Tensor:
        """q (N, H, T, D) of queries (N, T, query_size)."""
        check_input("queries", queries, self.query.in_features)
        return split_heads(self.query(queries), self.n_head)

    def keys_and_values(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """k and v, (N, H, S, D) each, of keys (N, S, key_size) and values (N, S, value_size).

        A memory that is read often is mapped once.
        """
        check_input("keys", keys, self.key.in_features)
        check_input("values", values, self.value.in_features)
        if values.shape[:2] != keys.shape[:2]:
            raise ValueError(f"values has shape {tuple(values.shape)}; expected (N, S) = {tuple(keys.shape[:2])} first")
        return split_heads(self.key(keys), self.n_head), split_heads(self.value(values), self.n_head)

    def attend_to(self, q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, **masks: Tensor | None) -> Tensor:
        """The result (N, T, width) of queries, keys and values that are mapped already.

        masks: padding_mask (N, S), attention_mask (T, S) and memory_mask (T, S), see `combine_masks`.
        """
        visible = combine_masks(**masks, shape=(q.size(0), q.size(2), k.size(2)))
        dropout = self.dropout if self.training else 0.0
        y = attend(q, k, v, score=self.score, visible=visible, causal=causal, dropout=dropout)  # (N, H, T, D)
        return self.proj(join_heads(y))


def _check_shapes(q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None, causal: bool) -> None:
    T, S = q.size(-2), k.size(-2)
    if k.shape[:-2] != q.shape[:-2]:
        raise ValueError(f"k has shape {tuple(k.shape)}; expected the leading dimensions {tuple(q.shape[:-2])} of q")
    if v.shape[:-1] != k.shape[:-1]:
        raise ValueError(f"v has shape {tuple(v.shape)}; expected {tuple(k.shape[:-1])}, those of k, before its width")
    if causal and T > S:
        raise ValueError(
            f"q has shape {tuple(q.shape)}; expected at most as many queries as the {S} keys, being causal"
        )
    if visible is not None:
        scores = (*q.shape[:-1], S)
        fits = visible.ndim <= len(scores) and all(
            n in (1, m) for n, m in zip(reversed(visible.shape), reversed(scores), strict=False)
        )
        if not fits:
            raise ValueError(f"visible has shape {tuple(visible.shape)}; expected one that broadcasts to {scores}")
