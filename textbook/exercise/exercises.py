"""Each function of `attention_exercise.py` in its right form; other keyword arguments make it a typical mistake."""

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from model.attention import masked_softmax
from model.scoring import dot
from textbook.chapter1_average import average_by_loop
from textbook.chapter4_heads import join_heads, split_heads


class Exercise(NamedTuple):
    arguments: Callable[..., tuple]  # of the function: draw(*shape) -> Tensor, B, T, S, C, H -> arguments
    right: Callable[..., Tensor]
    mistakes: dict[str, dict[str, Any]]  # what a sentence describes, as keyword arguments of `right`


def lower(x: Tensor, diagonal: int = 0) -> Tensor:
    return torch.ones(x.size(1), x.size(1), dtype=torch.bool).tril(diagonal)


def root_of_head_size(x: Tensor, q: Tensor) -> float:
    return q.size(-1) ** 0.5


def attend(
    x: Tensor,
    memory: Tensor,
    maps: Iterable[Tensor],
    visible: Tensor,
    n_head: int = 1,
    *,
    split: Callable[..., Tensor] = split_heads,
    join: Callable[..., Tensor] = join_heads,
    score: Callable[..., Tensor] = dot,
    divisor: Callable[..., float] = root_of_head_size,
    weights: Callable[..., Tensor] = masked_softmax,
) -> Tensor:
    q, k, v = (split(y @ one_map, n_head) for y, one_map in zip((x, memory, memory), maps, strict=True))
    return join(weights(score(q, k) / divisor(x, q), visible=visible) @ v)


def head(x: Tensor, *maps: Tensor, diagonal: int = 0, **mistake: Any) -> Tensor:
    return attend(x, x, maps, lower(x, diagonal), **mistake)


def multi_head(x: Tensor, *maps: Any, diagonal: int = 0, mixed: bool = True, **mistake: Any) -> Tensor:
    *of_heads, output_map, n_head = maps
    joined = attend(x, x, of_heads, lower(x, diagonal), n_head, **mistake)
    return joined @ output_map if mixed else joined


def cross_attention(x: Tensor, memory: Tensor, padding_mask: Tensor, *maps: Tensor, **mistake: Any) -> Tensor:
    return attend(x, memory, maps, padding_mask[:, None, None] != 0, **mistake)


def bigram_loss(
    table: Tensor, ids: Tensor, *, rows=slice(-1), columns=slice(1, None), reduction="mean", factor=1.0
) -> Tensor:
    return factor * cross_entropy(table[ids[rows]], ids[columns], reduction=reduction)


def split_badly(x: Tensor, n_head: int) -> Tensor:
    return x.reshape(len(x), n_head, x.size(1), -1)


def join_badly(x: Tensor) -> Tensor:
    return x.reshape(len(x), x.size(2), -1)


RESHAPED = "the numbers only got another shape. Transpose the axes T and H, too."
HIDDEN = {
    "the mask comes after the softmax, so the rows no longer add up to 1. It belongs before it.": {
        "weights": lambda s, visible: s.softmax(-1) * visible
    },
    "nothing is hidden. Is the mask used? (masked_fill returns a new tensor.)": {
        "weights": lambda s, visible: s.softmax(-1)
    },
    "hidden keys have the score 0, and exp(0) is 1. They need -inf.": {
        "weights": lambda s, visible: (s * visible).softmax(-1)
    },
    "what should be visible is hidden, and the other way round.": {
        "weights": lambda s, visible: masked_softmax(s, visible=~visible)
    },
}
AXIS = "the softmax runs over the queries. It belongs over the keys, dim=-1."
WEIGHTS = HIDDEN | {AXIS: {"weights": lambda s, visible: masked_softmax(s.mT, visible=visible.mT).mT}}
SCALE = {
    "the scores are not divided by sqrt(D).": {"divisor": lambda x, q: 1},
    "the scores are multiplied by sqrt(D), not divided.": {"divisor": lambda x, q: q.size(-1) ** -0.5},
    "the scores are divided by D, not by sqrt(D).": {"divisor": lambda x, q: q.size(-1)},
    "the scores are divided by sqrt(C). A head has only D channels.": {"divisor": lambda x, q: x.size(-1) ** 0.5},
    "the scores are divided by sqrt(T). D is the number of channels of a key.": {
        "divisor": lambda x, q: x.size(1) ** 0.5
    },
}
CAUSAL: dict[str, dict[str, Any]] = {
    "a position sees the future, not the past: triu in place of tril.": {
        "weights": lambda s, visible: masked_softmax(s, visible=visible.mT)
    },
    "the scores are transposed: K Q^T in place of Q K^T.": {"score": lambda q, k: dot(k, q)},
    "a position sees the one after it, too: the triangle is too large.": {"diagonal": 1},
    "a position does not see itself: the triangle is too small.": {"diagonal": -1},
}
HEADS: dict[str, dict[str, Any]] = {
    "the heads are joined without transposing.": {"join": join_badly},
    "the heads are split without transposing.": {"split": split_badly},
    "the heads are split and joined without transposing.": {"split": split_badly, "join": join_badly},
    "the last map is missing.": {"mixed": False},
    "all channels attend as one head. Split them first.": {"split": lambda x, n_head: x[:, None]},
}
PAIRS: dict[str, dict[str, Any]] = {
    "it is a sum. Divide it by the number of pairs.": {"reduction": "sum"},
    "the sign is wrong. The loss is the mean of -log p.": {"factor": -1},
    "it is in bits. With the natural logarithm, it is in nats.": {"factor": 1 / math.log(2)},
    "each character predicts itself. Compare row ids[:-1] with column ids[1:].": {"columns": slice(-1)},
    "the rows are the second of each pair. They belong to the first.": {"rows": slice(1, None), "columns": slice(-1)},
}
EXERCISES = {
    "average_of_the_past": Exercise(
        lambda draw, B, T, S, C, H: (draw(B, T, C),),
        lambda x, mean=average_by_loop: mean(x),
        {
            "it is a sum. Divide it by the number of positions.": {"mean": lambda x: x.cumsum(1)},
            "the sum is divided by T at all positions.": {"mean": lambda x: x.cumsum(1) / x.size(1)},
            "each position has the mean of all, even of the future.": {"mean": lambda x: x.mean(1, True).expand_as(x)},
        },
    ),
    "masked_softmax": Exercise(
        lambda draw, B, T, S, C, H: (
            2 * draw(B, T, S) - 20 * (torch.arange(T) % 4)[:, None],  # would show that hidden scores are only low
            (torch.rand(*((T,) if B % 2 else (B, 1)), S) < 0.6) | (torch.arange(S) == 0),  # no row is wholly hidden
        ),
        lambda scores, visible, weights=masked_softmax: weights(scores, visible=visible),
        WEIGHTS | {"the softmax is missing.": {"weights": lambda s, visible: s.masked_fill(~visible, -math.inf)}},
    ),
    "head": Exercise(lambda draw, B, T, S, C, H: (draw(B, T, C), *draw(3, C, C // H)), head, WEIGHTS | SCALE | CAUSAL),
    "split_heads": Exercise(
        lambda draw, B, T, S, C, H: (draw(B, T, C), H),
        lambda x, n_head, split=split_heads: split(x, n_head),
        {
            RESHAPED: {"split": split_badly},
            "head 0 gets every H-th channel. It gets the first D.": {
                "split": lambda x, n_head: x.unflatten(-1, (-1, n_head)).permute(0, 3, 1, 2)
            },
        },
    ),
    "join_heads": Exercise(
        lambda draw, B, T, S, C, H: (draw(B, H, T, C),),
        lambda x, join=join_heads: join(x),
        {RESHAPED: {"join": join_badly}},
    ),
    "multi_head": Exercise(
        lambda draw, B, T, S, C, H: (draw(B, T, C), *draw(4, C, C), H),
        multi_head,
        WEIGHTS | SCALE | CAUSAL | HEADS,
    ),
    "cross_attention": Exercise(
        lambda draw, B, T, S, C, H: (
            *(draw(B, T, C), draw(B, S, C + 1), ((torch.arange(S) - torch.arange(B)[:, None]) // 2 == 0).int()),
            *(draw(C, C // H), *draw(2, C + 1, C // H)),
        ),
        cross_attention,
        HIDDEN | SCALE,  # a softmax over the queries gives nothing but NaN
    ),
    "bigram_loss": Exercise(lambda draw, B, T, S, C, H: (draw(T, T), torch.randint(T, (20 * B,))), bigram_loss, PAIRS),
}
