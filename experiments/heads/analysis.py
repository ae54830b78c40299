"""The analysis that the page of a checkpoint shows."""

import math
from dataclasses import dataclass
from functools import partial

from torch import Tensor
from tqdm import tqdm

from data.batches import Ids
from data.vocabulary import Vocabulary
from experiments.heads.measures import HeadMeasures, measure_heads
from experiments.heads.model_access import HeadIndex, all_heads, read_windows, scales_of
from experiments.heads.passages import Passage, find_passages
from experiments.heads.silence import NGRAMS, Parts, losses_without
from model.gpt import GPT
from training.evaluation import Evaluation
from training.runtime import Runtime

N_PASSAGES = 3


@dataclass(frozen=True)
class Analysis:
    """The results for all heads, in the order of the measures.

    passages: of each head, the passages in which it attends most strongly to one character. evaluation: of the whole
    model. increases: of the loss with only this head silenced, and their standard errors. order: the heads, the least
    important first. cumulative: the losses with the first 1, 2, ... heads of the order silenced. loss_without_ngrams:
    None for a model that has no memory of n-grams.
    """

    measures: HeadMeasures
    passages: list[list[Passage]]
    evaluation: Evaluation
    increases: dict[HeadIndex, tuple[float, float]]
    order: list[HeadIndex]
    cumulative: list[float]
    loss_without_ngrams: float | None

    @property
    def heads(self) -> list[HeadIndex]:
        return list(self.increases)


def analyse(
    model: GPT, vocabulary: Vocabulary, ids: Ids, runtime: Runtime, n_characters: int | None, *, n_windows: int = 64
) -> Analysis:
    """Measure every head on the validation split.

    ids: of the split; the first id is only context, see `Corpus.split`. n_characters: how many of them the losses
    cover, see `evaluate`; None: all. n_windows: windows of model.block_size characters, spread evenly over ids, for the
    measures.
    """
    heads = all_heads(model)
    measures = measure_heads(read_windows(model, vocabulary, ids, n_windows), scales_of(model))
    passages = find_passages(read_windows(model, vocabulary, ids, n_windows), N_PASSAGES)

    # From the last layer to the first, so that each set differs from the one before in few layers.
    sets: list[Parts] = [(NGRAMS,)] * bool(model.ngrams) + [(), *((head,) for head in reversed(heads))]
    n_available = len(ids) - 1
    total = -(-min(n_available, n_characters or n_available) // model.config.block_size) * (len(sets) + len(heads))
    with tqdm(total=total, desc="Silencing heads", unit=" windows", disable=None, leave=False) as bar:
        measure = partial(losses_without, model, ids, runtime, n_characters=n_characters, bar=bar)
        sums, sizes = measure(sets)  # (sets, windows), (windows,)
        by_set = dict(zip(sets, sums, strict=True))
        increases = {head: mean_and_error(by_set[head,] - by_set[()], sizes) for head in heads}
        order = sorted(heads, key=lambda head: increases[head][0])  # of equal increases, the earlier layer first
        cumulative, _ = measure([order[: n + 1] for n in range(len(order))])
    whole = Evaluation(mean_and_error(by_set[()], sizes)[0], int(sizes.sum()), n_available, model.config.block_size)
    no_ngrams = mean_and_error(by_set[NGRAMS,], sizes)[0] if model.ngrams else None
    losses = [mean_and_error(each, sizes)[0] for each in cumulative]
    return Analysis(measures, passages, whole, increases, order, losses, no_ngrams)


def mean_and_error(sums: Tensor, sizes: Tensor) -> tuple[float, float]:
    """Return the mean per character of windows' sums, and its standard error as if the windows were drawn at random.

    sizes: the characters of each window.
    """
    n, total, mean = len(sizes), sizes.sum(), sums.sum() / sizes.sum()
    error = (sums - mean * sizes).norm() / total * math.sqrt(n / (n - 1)) if n > 1 else math.nan
    return float(mean), float(error)
