"""Everything that the page of a checkpoint tells of its heads."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from data.vocabulary import Vocabulary
from experiments.heads.knock_out import Head, all_heads, cumulative_losses, loss_without, rank
from experiments.heads.measures import HeadStatistics, HeadTally
from model.gpt import GPT
from model.trace import attention_weights
from training.runtime import Runtime


@dataclass(frozen=True)
class Analysis:
    """heads: all N, in the order of the statistics. loss: of the whole network, nats per character over n_characters.

    losses_without: with each head alone silenced. order: from the least important on. cumulative: with the first 1, 2,
    ... of the order silenced.
    """

    heads: list[Head]
    statistics: HeadStatistics
    loss: float
    n_characters: int
    losses_without: dict[Head, float]
    order: list[Head]
    cumulative: list[float]


def analyse(
    model: GPT, vocabulary: Vocabulary, ids: np.ndarray, runtime: Runtime, *, n_windows: int, n_characters: int | None
) -> Analysis:
    """ids: of the validation split, its first character being only read from, see `Corpus.split`.

    n_windows: of model.block_size characters, evenly spread over ids, that the statistics are over. n_characters: the
    first ones of ids, over which losses are measured; None: all.
    """
    heads, block_size = all_heads(model), model.config.block_size
    starts = np.linspace(0, len(ids) - block_size, num=min(n_windows, len(ids) // block_size), dtype=np.int64)
    scored = ids if n_characters is None else ids[: max(2, n_characters + 1)]
    with tqdm(total=len(starts) + 1 + 2 * len(heads), desc="Looking into heads", disable=None, leave=False) as bar:
        tally = HeadTally()
        for start in starts:
            window = ids[start : start + block_size]
            tally.add(weights_of(model, window), vocabulary.decode(int(i) for i in window))
            bar.update()
        loss = loss_without(model, [], scored, runtime)
        bar.update()
        losses = dict(_told(bar, ((head, loss_without(model, [head], scored, runtime)) for head in heads)))
        order = rank(losses)
        cumulative = list(_told(bar, cumulative_losses(model, order, scored, runtime)))
    return Analysis(heads, tally.result(), loss, len(scored) - 1, losses, order, cumulative)


@torch.inference_mode()
def weights_of(model: GPT, ids: np.ndarray) -> Tensor:
    """How every head weighs the characters ids (T,): (N, T, T), float32, on the CPU."""
    device = model.lm_head.weight.device
    batch = torch.from_numpy(ids.astype(np.int64))[None].to(device)
    return torch.cat([weights[0].float().cpu() for weights in attention_weights(model, batch)])


def _told(bar: tqdm, results: Iterator) -> Iterator:
    for result in results:
        bar.update()
        yield result
