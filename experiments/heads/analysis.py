"""What the heads of a checkpoint attend to, and how much the loss rises without each."""

import math
from dataclasses import dataclass

from torch import Tensor
from tqdm import tqdm

from data.batches import Ids
from data.vocabulary import Vocabulary
from experiments.heads.measures import HeadMeasures, measure_heads
from experiments.heads.model_access import HeadIndex, all_heads, read_windows, scales_of
from experiments.heads.silence import NGRAMS, Parts, losses_without
from model.gpt import GPT
from training.evaluation import Evaluation
from training.runtime import Runtime


@dataclass(frozen=True)
class Analysis:
    """The results for all heads.

    evaluation: of the whole model. increases: of the loss with only this head silenced, in the order of the measures,
    and then with only the memory of n-grams silenced, if the model has one; each with its standard error.
    """

    measures: HeadMeasures
    evaluation: Evaluation
    increases: dict[HeadIndex | str, tuple[float, float]]


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

    memory: list[HeadIndex | str] = [NGRAMS] if model.ngrams else []
    # From the last layer to the first, so that each set differs from the one before in few layers.
    sets: list[Parts] = [*((part,) for part in memory), (), *((head,) for head in reversed(heads))]
    n_available = len(ids) - 1
    total = -(-min(n_available, n_characters or n_available) // model.config.block_size) * len(sets)
    with tqdm(total=total, desc="Silencing heads", unit=" windows", disable=None, leave=False) as bar:
        sums, sizes = losses_without(model, ids, runtime, sets, n_characters=n_characters, bar=bar)
    by_set = dict(zip(sets, sums, strict=True))  # of each window, (windows,)
    whole = Evaluation(mean_and_error(by_set[()], sizes)[0], int(sizes.sum()), n_available, model.config.block_size)
    increases = {part: mean_and_error(by_set[part,] - by_set[()], sizes) for part in [*heads, *memory]}
    return Analysis(measures, whole, increases)


def mean_and_error(sums: Tensor, sizes: Tensor) -> tuple[float, float]:
    """Return the mean per character of windows' sums, and its standard error as if the windows were drawn at random.

    sizes: the characters of each window.
    """
    n, total, mean = len(sizes), sizes.sum(), sums.sum() / sizes.sum()
    error = (sums - mean * sizes).norm() / total * math.sqrt(n / (n - 1)) if n > 1 else math.nan
    return float(mean), float(error)
