"""Each function of `attention_exercise.py` in its right form, from the chapters, and with one typical mistake each."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from model.attention import attend, masked_softmax
from textbook.chapter1_average import average_by_loop
from textbook.chapter3_head import one_head
from textbook.chapter4_heads import join_heads, split_heads
from textbook.chapter8_bigram import Bigram


class Exercise(NamedTuple):
    arguments: Callable[..., tuple]  # of the function, from B, T, S, C and H
    right: Callable[..., Tensor]
    mistakes: dict[str, Callable[..., Tensor]]  # by a sentence


def lower(T: int, diagonal: int = 0) -> Tensor:
    return torch.ones(T, T, dtype=torch.bool).tril(diagonal)


def weights_with(scores: Tensor, visible: Tensor, *, dim: int = -1, mask: str = "before the softmax") -> Tensor:
    if mask == "after":
        return F.softmax(scores, dim).masked_fill(~visible, 0.0)
    hidden = {"before the softmax": ~visible, "none": torch.zeros_like(visible), "exchanged": visible}[mask]
    return F.softmax(scores.masked_fill(hidden, float("-inf")), dim)


def attend_with(
    q: Tensor, k: Tensor, v: Tensor, visible: Tensor, *, divisor=None, transposed=False, **mistake
) -> Tensor:
    scores = (k @ q.mT if transposed else q @ k.mT) / (divisor or q.size(-1) ** 0.5)
    return weights_with(scores, visible, **mistake) @ v


def head_with(x: Tensor, *maps: Tensor, diagonal: int = 0, **mistake: Any) -> Tensor:
    q, k, v = (x @ one_map for one_map in maps)
    return attend_with(q, k, v, lower(x.size(1), diagonal), **mistake)


def heads_with(x: Tensor, *maps: Any, split=split_heads, join=join_heads, diagonal=0, **mistake: Any) -> Tensor:
    *of_heads, last, n_head = maps
    q, k, v = (split(x @ one_map, n_head) for one_map in of_heads)
    return join(attend_with(q, k, v, lower(x.size(1), diagonal), **mistake)) @ last


def multi_head(x: Tensor, *maps: Any) -> Tensor:
    *big_maps, last, n_head = maps
    q, k, v = (one_map.unflatten(1, (n_head, -1)).transpose(0, 1) for one_map in big_maps)  # (H, C, D) each
    return join_heads(one_head(x[:, None], q, k, v, tril=lower(x.size(1)))["output"]) @ last


def cross_with(x: Tensor, memory: Tensor, padding_mask: Tensor, *maps: Tensor, form=attend_with, **mistake) -> Tensor:
    q, k, v = (y @ one_map for y, one_map in zip((x, memory, memory), maps, strict=True))
    return form(q, k, v, visible=padding_mask[:, None] != 0, **mistake)


def bigram_loss(table: Tensor, ids: Tensor) -> Tensor:
    model = Bigram(len(table))
    model.table.weight.data = table
    return torch.tensor(model.mean_loss(ids))


def bigram_with(table: Tensor, ids: Tensor, *, rows=slice(-1), columns=slice(1, None), **options: Any) -> Tensor:
    return F.cross_entropy(table[ids[rows]], ids[columns], **options)


def split_badly(x: Tensor, n_head: int) -> Tensor:
    return x.reshape(len(x), n_head, x.size(1), -1)


def join_badly(x: Tensor) -> Tensor:
    return x.reshape(len(x), x.size(2), -1)


def with_mistakes(
    form: Callable[..., Tensor], *mistakes: dict[str, dict[str, Any]]
) -> dict[str, Callable[..., Tensor]]:
    return {sentence: partial(form, **mistake) for part in mistakes for sentence, mistake in part.items()}


WEIGHTS: dict[str, dict[str, Any]] = {
    "the softmax runs over the queries. It belongs over the keys, dim=-1.": {"dim": -2},
    "the mask comes after the softmax, so the rows no longer add up to 1. It belongs before it.": {"mask": "after"},
    "nothing is hidden.": {"mask": "none"},
    "what should be visible is hidden, and the other way round.": {"mask": "exchanged"},
}
SCALE: dict[str, dict[str, Any]] = {"the scores are not divided by sqrt(D).": {"divisor": 1}}
CAUSAL: dict[str, dict[str, Any]] = {
    "the scores are transposed: K Q^T in place of Q K^T.": {"transposed": True},
    "a position sees the one after it, too: the triangle is too large.": {"diagonal": 1},
    "a position does not see itself: the triangle is too small.": {"diagonal": -1},
}
HEADS: dict[str, dict[str, Any]] = {
    "the heads are joined without transposing.": {"join": join_badly},
    "the heads are split without transposing.": {"split": split_badly},
    "the heads are split and joined without transposing.": {"split": split_badly, "join": join_badly},
}
PAIRS: dict[str, dict[str, Any]] = {
    "it is a sum. Divide it by the number of pairs.": {"reduction": "sum"},
    "each character predicts itself. Compare row ids[:-1] with column ids[1:].": {"columns": slice(-1)},
    "the rows are the second of each pair. They belong to the first.": {"rows": slice(1, None), "columns": slice(-1)},
}
RESHAPED = "the numbers only got another shape. Transpose the axes T and H, too."
EXERCISES = {
    "average_of_the_past": Exercise(
        lambda B, T, S, C, H: (torch.randn(B, T, C),),
        average_by_loop,
        {
            "it is a sum. Divide it by the number of positions.": lambda x: x.cumsum(1),
            "each position has the mean of all, even of the future.": lambda x: x.mean(1, keepdim=True).expand_as(x),
        },
    ),
    "masked_softmax": Exercise(
        lambda B, T, S, C, H: (torch.randn(B, T, T), lower(T)),
        lambda scores, visible: masked_softmax(scores, visible=visible),
        with_mistakes(weights_with, WEIGHTS),
    ),
    "head": Exercise(
        lambda B, T, S, C, H: (torch.randn(B, T, C), *torch.randn(3, C, 3)),
        lambda x, *maps: one_head(x, *maps, tril=lower(x.size(1)))["output"],
        with_mistakes(head_with, WEIGHTS, SCALE, CAUSAL),
    ),
    "split_heads": Exercise(lambda B, T, S, C, H: (torch.randn(B, T, C), H), split_heads, {RESHAPED: split_badly}),
    "join_heads": Exercise(lambda B, T, S, C, H: (torch.randn(B, H, T, C),), join_heads, {RESHAPED: join_badly}),
    "multi_head": Exercise(
        lambda B, T, S, C, H: (torch.randn(B, T, C), *torch.randn(4, C, C), H),
        multi_head,
        with_mistakes(heads_with, WEIGHTS, SCALE, CAUSAL, HEADS)
        | {
            "the scores are divided by sqrt(C). A head has only D = C / H channels.": lambda x, *maps: heads_with(
                x, *maps, divisor=x.size(-1) ** 0.5
            ),
            "the last map is missing.": lambda x, *maps: heads_with(x, *maps[:3], torch.eye(x.size(-1)), maps[4]),
        },
    ),
    "cross_attention": Exercise(
        lambda B, T, S, C, H: (
            *(torch.randn(B, T, C), torch.randn(B, S, C + 1), (torch.arange(S) <= torch.arange(B)[:, None]).int()),
            *(torch.randn(C, 3), *torch.randn(2, C + 1, 3)),
        ),
        partial(cross_with, form=attend),
        with_mistakes(cross_with, WEIGHTS, SCALE),
    ),
    "bigram_loss": Exercise(
        lambda B, T, S, C, H: (torch.randn(T, T), torch.randint(T, (5 * B,))),
        bigram_loss,
        with_mistakes(bigram_with, PAIRS),
    ),
}
