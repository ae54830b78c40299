"""Measure how well the previous character alone predicts the next one: python -m experiments.bigram"""

import math
from argparse import Namespace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from cli.command import run_command
from data.config import DataConfig
from data.corpus import open_corpus
from experiments.command import command, option
from model.textbook.bigram import Bigram


@command(
    "experiments.bigram",
    __doc__,
    option("--corpus", default="selmere", metavar="NAME", help="a named corpus or a file (%(default)s)"),
    memory="use a shorter text",
)
def main(options: Namespace) -> None:
    corpus = open_corpus(DataConfig(corpus=options.corpus))
    splits = corpus.split(DataConfig().split, block_size=1)
    train_ids, val_ids, _ = (torch.from_numpy(ids[:].astype(np.int64)) for ids in splits)
    model = Bigram(len(corpus.vocabulary)).double()
    model.fit(train_ids)
    n_scores = model.table.weight.numel()
    print(f"A table of {n_scores:,} scores, from counts in the first {len(train_ids):,} characters of {corpus.name}")
    for split, ids in (("training", train_ids), ("validation", val_ids)):
        loss = mean_loss(model, ids)
        print(f"{split} loss {loss:.4f} nats ({loss / math.log(2):.3f} bits) over {len(ids) - 1:,} characters")


@torch.inference_mode()
def mean_loss(model: Bigram, ids: Tensor) -> float:
    """Return the mean cross-entropy, in nats, of all ids (n,) except the first, each given the previous one."""
    log_probabilities = F.log_softmax(model.table.weight, dim=-1)  # (V, V)
    return -log_probabilities[ids[:-1], ids[1:]].mean().item()


if __name__ == "__main__":
    run_command(main)
