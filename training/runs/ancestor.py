"""The ancestor of a run: the model whose weights it starts with (fine-tuning)."""

from pathlib import Path

import torch

from model.ngrams import MOST
from training.config import Config
from training.runs.checkpoint import Checkpoint, CheckpointError
from training.runs.differences import other_models
from training.runs.find_checkpoint import open_checkpoint
from training.state import TrainingState

BY_CHARACTER = ("token_embedding.weight", "lm_head.weight")  # weights with one row for each character


def open_ancestor(config: Config) -> Checkpoint:
    """Return the model of `train.ancestor`. Raises CheckpointError if it has another shape than the config's."""
    assert config.train.ancestor is not None
    path, ancestor = open_checkpoint(Path(config.train.ancestor))
    if found := other_models(ancestor.config, config):
        raise CheckpointError(
            f"{path} is another model than that of this config ({'; '.join(found)}); set these as in {path}"
        )
    return ancestor


def adopt(state: TrainingState, ancestor: Checkpoint) -> None:
    """Give the model of a new run the weights of its ancestor (fine-tuning); the optimisers start from scratch.

    New characters get the mean row, so that they change the model's other predictions little (Hewitt, 2021).
    """
    before, now = ancestor.vocabulary.characters, state.corpus.vocabulary.characters
    if missing := set(before) - set(now):
        raise CheckpointError(f"data.characters lacks {sorted(missing)!r:.80} of {state.config.train.ancestor}")
    weights, places = ancestor.weights, torch.tensor([now.index(character) for character in before])
    for name in BY_CHARACTER:
        rows = weights[name].mean(0, keepdim=True).repeat(len(now), 1)
        rows[places] = weights[name]
        weights[name] = rows
    if state.model.ngrams is not None:
        if places.tolist() != list(range(len(before))):  # the n-grams of other ids have other rows
            weights |= {name: torch.zeros_like(weights[name]) for name in ("ngrams.rows.weight", "ngrams.counts")}
        weights["ngrams.counts"] = (weights["ngrams.counts"] + state.model.ngrams.counts.cpu()).clamp(max=MOST)
    state.load_state_dict({"progress": state.progress, "tensors": {f"model.{k}": x for k, x in weights.items()}})
    state.origin["ancestor"] = ancestor.weights_digest()[:16]
