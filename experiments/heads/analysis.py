"""What the heads of a checkpoint attend to, and how much the loss rises without each."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from tqdm import tqdm

from cli.errors import UserError
from data.batches import Ids
from data.vocabulary import Vocabulary
from experiments.heads.measures import HeadMeasures, measure_heads, read_windows, scales_of
from experiments.heads.silence import Part, parts_of, silenced
from model.gpt import GPT
from training.evaluation import Evaluation, evaluation_mode, scored_windows
from training.runtime import Runtime

VALIDATION = "the validation split"  # the name of the text if it is this part of the corpus


@dataclass(frozen=True)
class Analysis:
    """The results for all heads.

    text: the name of the text that was read. evaluation: of the whole model. increases: of the loss with only this head
    silenced, in the order of the measures, and then with each of the model's memories silenced alone; each with its
    standard error.
    """

    text: str
    measures: HeadMeasures
    evaluation: Evaluation
    increases: dict[Part, tuple[float, float]]


def analyse(
    model: GPT,
    vocabulary: Vocabulary,
    ids: Ids,
    runtime: Runtime,
    n_characters: int | None,
    *,
    text: str = VALIDATION,
    n_windows: int = 64,
) -> Analysis:
    """Measure every head on a text. Raises UserError if it is shorter than the context length, or there is no head.

    ids: of the text; the first id is only context, see `Corpus.split`. n_characters: how many of them the losses cover,
    see `evaluate`; None: all. n_windows: windows of model.block_size characters, spread evenly over ids, for the
    measures.
    """
    if len(ids) < (T := model.config.block_size):
        raise UserError(f"{text} has {len(ids)} characters; give at least {T}, the context length")
    if not model.blocks:
        raise UserError("the model has no heads, because model.n_layer=0")
    measures = measure_heads(read_windows(model, vocabulary, ids, n_windows), scales_of(model))
    whole, sizes = losses_of_windows(model, ids, runtime, n_characters)
    increases = {}
    for part in tqdm(parts_of(model), desc="Silencing heads", disable=None, leave=False):
        with silenced(model, [part]):
            without, _ = losses_of_windows(model, ids, runtime, n_characters)
        increases[part] = mean_and_error(without - whole, sizes)
    loss, _ = mean_and_error(whole, sizes)
    evaluation = Evaluation(loss, int(sizes.sum()), len(ids) - 1, model.config.block_size)
    return Analysis(text, measures, evaluation, increases)


@torch.inference_mode()
def losses_of_windows(model: GPT, ids: Ids, runtime: Runtime, n_characters: int | None) -> tuple[Tensor, Tensor]:
    """Return the sum of losses in each window of `evaluate`, (windows,) float64, and the characters of each."""
    sums, sizes = [], []
    with evaluation_mode(model):
        for targets, losses in scored_windows(model, ids, runtime, n_characters):
            sums.append(losses.sum(-1).cpu())
            sizes += [targets.size(1)] * len(targets)
    return torch.cat(sums), torch.tensor(sizes)


def mean_and_error(sums: Tensor, sizes: Tensor) -> tuple[float, float]:
    """Return the mean per character of windows' sums, and its standard error as if the windows were drawn at random.

    sizes: the characters of each window.
    """
    n, total, mean = len(sizes), sizes.sum(), sums.sum() / sizes.sum()
    error = (sums - mean * sizes).norm() / total * math.sqrt(n / (n - 1)) if n > 1 else math.nan
    return float(mean), float(error)
