"""Measure the loss of trained models over a split or a text: python -m experiments.score --split test"""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from cli.command import run_command
from cli.options import command, option
from data.corpus import Split
from training.evaluation import evaluate
from training.identity import group_seeds, what_differs
from training.trained_model import load_model

MODELS = "runs or checkpoints (default: the best saved last)"


@command(
    option("--checkpoint", type=Path, nargs="+", default=[None], metavar="PATH", help=MODELS),
    option("--split", choices=Split._fields, help="part of the corpus or of --text (validation, or all of --text)"),
    option("--text", type=Path, metavar="FILE", help="a text in place of the corpus, in its encoding"),
    option("--device", default="auto", help="auto, cpu, cuda, cuda:1 or mps (%(default)s)"),
)
def main(options: Namespace) -> None:
    losses, identities = [], []
    for path in options.checkpoint:
        opened = load_model(path, options.device, text=options.text)
        result = evaluate(opened.model, opened.split(options.split), opened.runtime, progress="Scoring")
        losses.append(result.loss)
        identities.append(opened.checkpoint.identity)
        whole = opened.text and not options.split
        part = options.split or "validation"
        corpus = opened.checkpoint.config.data.val_corpus if part == "validation" else None
        name = opened.text if whole else f"the {part} split of {corpus or opened.corpus.name}"
        perplexity = torch.tensor(result.loss, dtype=torch.float64).exp().item()  # infinite rather than an error
        print(
            f"{opened.path} on {name}: {result.loss:.4f} nats, "
            f"{result.bits_per_character:.4f} bits per character, perplexity {perplexity:.3f}, "
            f"over {result.n_characters:,} characters, context length {result.context}",
            flush=True,
        )
    if len(losses) > 1:
        print(summary(losses, identities))


def summary(losses: Sequence[float], identities: Sequence[Mapping[str, Any]]) -> str:
    """Return the mean and the standard deviation of the losses, or why they have none."""
    variants = group_seeds(identities)
    if len(variants) == 1 and len(variants[0]) == len(losses):
        deviation, mean = torch.std_mean(torch.tensor(losses, dtype=torch.float64))
        return f"mean of {len(losses)} models: {mean:.4f} nats per character, standard deviation {deviation:.4f}"
    reason = f"they differ in {', '.join(what_differs(identities))}" if len(variants) > 1 else "two have the same seed"
    return f"no mean: the models are not seeds of one variant; {reason}"


if __name__ == "__main__":
    run_command(main)
