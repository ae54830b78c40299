"""Typical mistakes in the exercise, as changes of its solution."""

import inspect
from collections.abc import Callable, Iterator

from textbook.exercise import solution

AVERAGE = "tril / tril.sum(dim=1, keepdim=True) @ x"
HIDDEN = 'scores.masked_fill(~visible, float("-inf"))'
SPLIT = "x.reshape(B, T, n_head, width // n_head).transpose(1, 2)"

# What the solution has, what a learner has in its place, and what that means, also for functions that call this one.
MISTAKES = [
    (AVERAGE, "tril @ x", "it is a sum. Divide it by the number of positions."),
    (AVERAGE, "tril @ x / T", "the sum is divided by T at all positions."),
    (AVERAGE, "torch.ones(T, T) / T @ x", "each position has the mean of all, even of the future."),
    (AVERAGE, "tril / tril.sum(dim=1) @ x", "the columns are divided, not the rows: sum needs keepdim=True."),
    ("torch.tril(", "torch.triu(", "a position uses the future, not the past: triu in place of tril."),
    ("ones(T, T))", "ones(T, T), 1)", "a position uses the one after it, too: the triangle is too large."),
    ("ones(T, T))", "ones(T, T), -1)", "a position does not use itself, only those before: the triangle is too small."),
    (HIDDEN, "visible * scores", "the mask comes after the softmax, so rows do not add up to 1. It belongs before it."),
    (HIDDEN, "scores", "nothing is hidden. Is the mask used? (masked_fill returns a new tensor.)"),
    ('float("-inf")', "0", "hidden keys have the score 0, and exp(0) is 1. They need -inf."),
    ('float("-inf")', "-1", "hidden keys have the score -1, and exp(-1) is 0.37. They need -inf."),
    ("~visible", "visible", "what should be visible is hidden, and the other way round."),
    (".softmax(dim=-1)", ".softmax(dim=-2)", "the softmax runs over the queries. It belongs over the keys, dim=-1."),
    (".softmax(dim=-1)", "", "the softmax is missing."),
    ("q @ k.transpose", "k @ q.transpose", "the scores are transposed: K Q^T in place of Q K^T."),
    ("/ q.size(-1) ** 0.5", "", "the scores are not divided by sqrt(D)."),
    ("/ q.size(-1) ** 0.5", "* q.size(-1) ** 0.5", "the scores are multiplied by sqrt(D), not divided."),
    ("/ q.size(-1) ** 0.5", "/ q.size(-1)", "the scores are divided by D, not by sqrt(D)."),
    ("/ q.size(-1) ** 0.5", "/ x.size(-1) ** 0.5", "the scores are divided by sqrt(C). A head has only D channels."),
    ("/ q.size(-1) ** 0.5", "/ x.size(1) ** 0.5", "the scores are divided by sqrt(T). A key has D channels."),
    ("/ q.size(-1) ** 0.5", "/ n_head**0.5", "the scores are divided by sqrt(H). They need sqrt(D)."),
    (SPLIT, "x.reshape(B, n_head, T, -1)", "reshape alone splits the heads. Transpose the axes T and H, too."),
    (SPLIT, "x.reshape(B, T, -1, n_head).permute(0, 3, 1, 2)", "a head gets every H-th channel. It gets D neighbours."),
    ("x.transpose(1, 2).reshape", "x.reshape", "reshape alone joins the heads. Transpose the axes T and H, too."),
    ("one_map, n_head)", "one_map, 1)", "all channels attend as one head. Split them first."),
    (" @ output_map", "", "the last map is missing."),
    (" @ output_map", " @ output_map.T", "the last map is transposed."),
    (".mean()", ".sum()", "it is a sum. Divide it by n - 1."),
    (".mean()", ".sum() / len(ids)", "the sum is divided by n. There are n - 1 pairs."),
    (".mean()", ".mean() / 0.693147", "it is in bits. With the natural logarithm, it is in nats."),
    ("-log_p[", "log_p[", "the sign is wrong. The loss is the mean of -log p."),
    ("log_softmax", "softmax", "it is the mean of -p. The loss is that of -log p."),
    ("ids[:-1], ids[1:]", "ids[:-1], ids[:-1]", "each character predicts itself. The next ones are ids[1:]."),
    ("ids[:-1], ids[1:]", "ids[1:], ids[:-1]", "the rows are the second of each pair. They belong to the first."),
]


def wrong_versions(name: str) -> Iterator[tuple[str, Callable]]:
    """Yield what each mistake means, and the function of the solution that has it, or calls one that has it."""
    source = inspect.getsource(solution)
    for right, wrong, sentence in MISTAKES:
        functions: dict[str, Callable] = {}
        exec(source.replace(right, wrong), functions)
        yield sentence, functions[name]
