"""A checkpoint as one publishes it: the model alone, without paths of this machine."""

import dataclasses
import re
from pathlib import Path

from training.runs.checkpoint import Checkpoint


def published(checkpoint: Checkpoint, *, half: bool = False) -> Checkpoint:
    """Return a checkpoint for sampling. Its settings have only the last part of each path.

    half: with weights in float16, which are read as float32 again.
    """
    data, train = checkpoint.config.data, checkpoint.config.train
    val_corpus = _plain_name(data.val_corpus) if data.val_corpus else None
    data = dataclasses.replace(data, corpus=_plain_name(data.corpus), val_corpus=val_corpus, fallback=None)
    train = dataclasses.replace(train, ancestor=_plain_name(train.ancestor) if train.ancestor else None)
    config = dataclasses.replace(checkpoint.config, data=data, train=train)
    text = {**checkpoint.corpus, "name": _plain_name(checkpoint.corpus["name"])}
    model = checkpoint.without_training_state()
    tensors = {name: x.half() if half else x for name, x in model.tensors.items()}
    return dataclasses.replace(model, config=config, corpus=text, tensors=tensors)


def _plain_name(name: str) -> str:
    return re.sub(r"[^\w .-]+", "-", Path(name).name).strip(".") or "text"
