"""The analysis that the page of a checkpoint shows."""

from collections.abc import Collection
from dataclasses import dataclass

from tqdm import tqdm

from data.batches import Ids
from data.vocabulary import Vocabulary
from experiments.heads.measures import HeadMeasures, measure_heads
from experiments.heads.model_access import HeadIndex, all_heads, read_windows, scales_of
from experiments.heads.passages import Passage, find_passages
from experiments.heads.silence import NGRAMS, silenced
from model.gpt import GPT
from training.evaluation import Evaluation, evaluate
from training.runtime import Runtime

N_PASSAGES = 3


@dataclass(frozen=True)
class Analysis:
    """The results for all heads, in the order of the measures.

    passages: of each head, the passages in which it attends most strongly to one character. loss: of the whole model,
    nats per character over n_characters. losses_without: the loss with only this head silenced. order: the heads, the
    least important first. cumulative: the losses with the first 1, 2, ... heads of the order silenced.
    loss_without_ngrams: None for a model that has no memory of n-grams.
    """

    measures: HeadMeasures
    passages: list[list[Passage]]
    loss: float
    n_characters: int
    losses_without: dict[HeadIndex, float]
    order: list[HeadIndex]
    cumulative: list[float]
    loss_without_ngrams: float | None

    @property
    def heads(self) -> list[HeadIndex]:
        return list(self.losses_without)


def analyse(
    model: GPT, vocabulary: Vocabulary, ids: Ids, runtime: Runtime, *, n_windows: int, n_characters: int | None
) -> Analysis:
    """Measure every head on the validation split.

    ids: of the split; the first id is only context, see `Corpus.split`. n_windows: windows of model.block_size
    characters, spread evenly over ids, for the measures. n_characters: how many characters of ids the losses cover, see
    `evaluate`; None: all.
    """
    heads = all_heads(model)
    measures = measure_heads(read_windows(model, vocabulary, ids, n_windows), scales_of(model))
    passages = find_passages(read_windows(model, vocabulary, ids, n_windows), N_PASSAGES)

    def evaluate_without(silent: Collection[HeadIndex | str]) -> Evaluation:
        with silenced(model, silent):
            return evaluate(model, ids, runtime, n_characters=n_characters)

    whole = evaluate_without([])
    one = tqdm(heads, desc="Silencing one head", disable=None, leave=False)
    losses = {head: evaluate_without([head]).loss for head in one}
    order = sorted(heads, key=losses.__getitem__)  # of equal losses, the earlier layer first
    several = tqdm(range(1, len(order) + 1), desc="Silencing several heads", disable=None, leave=False)
    cumulative = [evaluate_without(order[:n]).loss for n in several]
    no_ngrams = evaluate_without([NGRAMS]).loss if model.ngrams else None
    return Analysis(measures, passages, whole.loss, whole.n_characters, losses, order, cumulative, no_ngrams)
