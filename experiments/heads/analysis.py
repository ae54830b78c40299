"""The analysis that the page of a checkpoint shows."""

from dataclasses import dataclass

import numpy as np
from tqdm import tqdm

from data.vocabulary import Vocabulary
from experiments.heads.characters import CharacterSimilarity, compare_characters
from experiments.heads.measures import HeadMeasures, HeadTally
from experiments.heads.model_access import HeadIndex, all_heads, character_embeddings, scales_of, weights_of
from experiments.heads.silence import loss_without
from model.gpt import GPT
from training.runtime import Runtime


@dataclass(frozen=True)
class Analysis:
    """The results for all N heads, in the order of the measures.

    scales: see `scales_of`.
    loss: of the whole model, nats per character over n_characters. losses_without: the loss with only this head
    silenced. order: the heads, the least important first. cumulative: the losses with the first 1, 2, ... heads of the
    order silenced.
    """

    heads: list[HeadIndex]
    scales: list[float]
    measures: HeadMeasures
    loss: float
    n_characters: int
    losses_without: dict[HeadIndex, float]
    order: list[HeadIndex]
    cumulative: list[float]
    similarity: CharacterSimilarity


def analyse(
    model: GPT, vocabulary: Vocabulary, ids: np.ndarray, runtime: Runtime, *, n_windows: int, n_characters: int | None
) -> Analysis:
    """Measure every head on the validation split.

    ids: of the split; the first id is only context, see `Corpus.split`. n_windows: windows of model.block_size
    characters, spread evenly over ids, for the measures. n_characters: how many characters of ids the losses cover;
    None: all.
    """
    heads, block_size = all_heads(model), model.config.block_size
    starts = np.linspace(0, len(ids) - block_size, num=min(n_windows, len(ids) // block_size), dtype=np.int64)
    scored = ids if n_characters is None else ids[: max(2, n_characters + 1)]
    with tqdm(total=len(starts) + 1 + 2 * len(heads), desc="Analysing heads", disable=None, leave=False) as bar:
        tally = HeadTally(len(heads))
        for start in starts:
            window = ids[start : start + block_size]
            tally.add(weights_of(model, window), vocabulary.decode(int(i) for i in window))
            bar.update()
        loss = loss_without(model, [], scored, runtime)
        bar.update()
        losses, cumulative = {}, []
        for head in heads:
            losses[head] = loss_without(model, [head], scored, runtime)
            bar.update()
        order = rank(losses)
        for n in range(1, len(order) + 1):
            cumulative.append(loss_without(model, order[:n], scored, runtime))
            bar.update()
    similarity = compare_characters(character_embeddings(model), vocabulary, ids)
    n_scored, scales = len(scored) - 1, scales_of(model)
    return Analysis(heads, scales, tally.result(), loss, n_scored, losses, order, cumulative, similarity)


def rank(losses: dict[HeadIndex, float]) -> list[HeadIndex]:
    """Sort heads by the loss without them: the least important head comes first."""
    return sorted(losses, key=lambda head: (losses[head], head))
