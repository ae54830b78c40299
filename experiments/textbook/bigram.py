"""Chapter 7, applied: how good is a table of pairs? Attention has to beat its validation loss."""

import math
from argparse import Namespace
from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from data.config import DataConfig
from data.corpus import open_corpus
from model.textbook.chapter7a_bigram import Bigram


def show(options: Namespace) -> Iterator[tuple[str, str]]:
    """Yield the losses of the table; memory grows with the text."""
    corpus = open_corpus(DataConfig(corpus=options.corpus))
    splits = corpus.split(DataConfig().split, block_size=1)
    train_ids, val_ids, _ = (torch.from_numpy(ids[:].astype(np.int64)) for ids in splits)
    model = Bigram(len(corpus.vocabulary)).double()
    model.fit(train_ids)
    size = f"{model.table.weight.numel():,} scores"
    yield "", f"A table of {size}, from counts in the first {len(train_ids):,} characters of {corpus.name}"
    for split, ids in (("training", train_ids), ("validation", val_ids)):
        loss = mean_loss(model, ids)
        yield "", f"{split} loss {loss:.4f} nats ({loss / math.log(2):.3f} bits) over {len(ids) - 1:,} characters"


@torch.inference_mode()
def mean_loss(model: Bigram, ids: Tensor) -> float:
    """Return the mean cross-entropy, in nats, of all ids (n,) except the first, each given the previous one."""
    log_probabilities = F.log_softmax(model.table.weight, dim=-1)  # (V, V)
    return -log_probabilities[ids[:-1], ids[1:]].mean().item()
