"""Chapter 4: why several heads? Because a position can need several things at once.

Answer to the question of chapter 3: 0.881, not 0.755. Larger scores make larger differences of weights.

In "mary gave roses to susan", "gave" needs to know who gave, what, and to whom. One head returns one weighted sum,
which mixes the three. H heads (a number that one chooses), each with D = C / H channels, return H sums side by side; a
last linear map mixes ("unifies") them. In page/gpt.html, "Inside" has a map of each head of a trained model, and
"Switch heads off" tells what a head is worth.

How can a head find the giver? "susan gave roses to mary" is the same set of words. Heads that look for words cannot
notice the exchange; heads that look for places can. In the example, the key of a word is its place: a 1 there, and 0 in
the other four channels. Its value is the word: a 1 at its id. Each head has all five channels, D = 5 (a wide head,
chapter 5). A query is 2,000 at each place that it looks for, so scores are 2000 / sqrt(5) = 894 there, and 0 elsewhere.
A place with the score 0 gets exp(0 - 894) times the weight of one with 894, which is 0 for a computer.

Question: what does the second of three heads read if it looks for two places, that of roses and the next? In `show`,
write [[0], [2, 3], [4]] in the line of "Three heads".

Next: python -m textbook 5 decides which keys a query sees, and makes one layer.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

SENTENCES = (("mary", "gave", "roses", "to", "susan"), ("susan", "gave", "roses", "to", "mary"))


def split_heads(x: Tensor, n_head: int) -> Tensor:
    """Reshape (B, T, H D) to (B, H, T, D)."""
    return x.unflatten(-1, (n_head, -1)).transpose(-3, -2)


def join_heads(x: Tensor) -> Tensor:
    """Reshape (B, H, T, D) to (B, T, H D): the heads side by side."""
    return x.transpose(-3, -2).flatten(-2)


def heads_by_loop(q: Tensor, k: Tensor, v: Tensor, n_head: int) -> Tensor:
    """Attend with each head's share of the channels and put the results side by side: (B, T, C) each -> (B, T, C)."""
    heads = zip(*(x.chunk(n_head, dim=-1) for x in (q, k, v)), strict=True)  # (B, T, D) each
    return torch.cat([F.softmax(q @ k.mT / k.size(-1) ** 0.5, dim=-1) @ v for q, k, v in heads], dim=-1)


def heads_in_batch(q: Tensor, k: Tensor, v: Tensor, n_head: int) -> Tensor:
    """Return the same with the heads folded into the batch, so that one product serves all of them."""
    B = q.size(0)
    q, k, v = (split_heads(x, n_head).flatten(0, 1) for x in (q, k, v))  # (B H, T, D) each
    weights = F.softmax(q @ k.mT / k.size(-1) ** 0.5, dim=-1)  # (B H, T, T)
    return join_heads((weights @ v).unflatten(0, (B, n_head)))


def what_gave_reads(roles: list[list[int]], *, by_place: bool = True) -> Tensor:
    """Return what "gave" reads in both sentences, (2, H, 5), with one head for each list of roles.

    A head looks for the places in its list; without by_place, for the words that the first sentence has there.
    """
    words = SENTENCES[0]
    one_hot = torch.eye(5, dtype=torch.float64)
    vectors = torch.stack([one_hot[[words.index(word) for word in sentence]] for sentence in SENTENCES])  # (2, 5, 5)
    keys = one_hot.expand(2, 5, 5) if by_place else vectors
    wanted = [2000 * one_hot[role].sum(dim=0).expand(2, 5, 5) for role in roles]
    q, k, v = (torch.cat(parts, dim=-1) for parts in (wanted, [keys] * len(roles), [vectors] * len(roles)))
    return heads_by_loop(q, k, v, len(roles))[:, 1].unflatten(1, (-1, 5))


def show() -> Iterator[str | tuple]:
    yield f"Two sentences: {' / '.join(map(' '.join, SENTENCES))}"
    yield (
        'How much "gave" reads of each word, in shapes of (sentences, heads, words). The columns of each head are, for '
        f"both sentences, {', '.join(SENTENCES[0])}.\n"
    )
    yield "One head for three places: 1/3 of each, the same in both sentences", what_gave_reads([[0, 2, 4]])
    yield "Three heads: giver, gift and receiver are kept apart", what_gave_reads([[0], [2], [4]])
    yield (
        "Keys are words, queries mary, roses and susan: no exchange is noticed",
        what_gave_reads([[0], [2], [4]], by_place=False),
    )

    q, k, v = torch.randn(3, 2, 5, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    equal = torch.allclose(heads_by_loop(q, k, v, 2), heads_in_batch(q, k, v, 2))
    results = "the same" if equal else "DIFFERENT results"
    yield f"Two heads by a loop and as extra sequences of the batch give {results}."
