"""Start a run from the weights of another model, its ancestor (fine-tuning)."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from data.vocabulary import Vocabulary
from training.config import Config
from training.runs.checkpoint import Checkpoint, CheckpointError
from training.runs.run_folder import open_checkpoint
from training.runs.saving import load_models, model_differences
from training.state import TrainingState

BY_CHARACTER = ("token_embedding.weight", "lm_head.weight")  # one row for each character


def open_ancestor(config: Config) -> Checkpoint:
    """Return the model of `train.ancestor`. Raises CheckpointError if it has another shape than the config's."""
    assert config.train.ancestor is not None
    path, ancestor = open_checkpoint(Path(config.train.ancestor))
    before = ancestor.config()
    differences = model_differences(before.model, config.model)
    if before.data.level != config.data.level:
        differences.append(f"data.level was {before.data.level} and is {config.data.level}")
    if differences:
        raise CheckpointError(
            f"{path} is another model than that of this config ({'; '.join(differences)}); set these as in {path}"
        )
    return ancestor


def adopt(state: TrainingState, ancestor: Checkpoint) -> None:
    """Give the model of a new run the weights of its ancestor; the optimisers start from scratch."""
    before, now = ancestor.vocabulary, state.corpus.vocabulary
    if missing := set(before.characters) - set(now.characters):
        raise CheckpointError(f"data.characters lacks {sorted(missing)!r:.80} of {state.config.train.ancestor}")
    weights = with_vocabulary(ancestor.model, before, now)
    load_models(state, averaged=weights, trained=weights)


def with_vocabulary(weights: Mapping[str, Tensor], before: Vocabulary, now: Vocabulary) -> dict[str, Tensor]:
    """Return a model's weights for a larger vocabulary.

    New characters get the mean row, so that they change the model's other predictions little (Hewitt, 2021).
    """
    places = torch.tensor([now.characters.index(character) for character in before.characters])
    result = dict(weights)
    for name in BY_CHARACTER:
        result[name] = weights[name].mean(0, keepdim=True).repeat(len(now), 1)
        result[name][places] = weights[name]
    return result
