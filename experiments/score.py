"""Measure the loss of trained models over a split or a text: python -m experiments.score --split test"""

import math
import statistics
from argparse import Namespace
from pathlib import Path

from cli.command import run_command
from cli.errors import UserError
from data.corpus import Split
from experiments.command import command, option
from training.evaluation import evaluate
from training.identity import what_differs
from training.trained_model import load_model

MODELS = "runs or checkpoints (default: the best saved last)"


@command(
    option("--checkpoint", type=Path, nargs="+", default=[None], metavar="PATH", help=MODELS),
    option("--split", choices=Split._fields, help="part of the corpus (validation)"),
    option("--text", type=Path, metavar="FILE", help="a text in place of the corpus, in its encoding"),
    option("--device", default="auto", help="auto, cpu, cuda, cuda:1 or mps (%(default)s)"),
)
def main(options: Namespace) -> None:
    if options.split and options.text:
        raise UserError("give --split or --text, not both")
    losses, identities, part = [], [], options.split or "validation"
    for path in options.checkpoint:
        opened = load_model(path, options.device, text=options.text)
        name = options.text or f"the {part} split of {opened.corpus.name}"
        result = evaluate(opened.model, opened.split(part), opened.runtime, progress="Scoring")
        losses.append(result.loss)
        identities.append(opened.checkpoint.identity)
        print(
            f"{opened.path} on {name}: {result.loss:.4f} nats, {result.bits_per_character:.4f} bits per character, "
            f"perplexity {math.exp(result.loss):.3f}, over {result.n_characters:,} characters, "
            f"context length {result.context}",
            flush=True,
        )
    if differing := what_differs(identities):
        print(f"no mean: the models are not seeds of one variant; they differ in {', '.join(differing)}")
    elif len(losses) > 1:
        mean, deviation = statistics.mean(losses), statistics.stdev(losses)
        print(f"mean of {len(losses)} models: {mean:.4f} nats per character, standard deviation {deviation:.4f}")


if __name__ == "__main__":
    run_command(main)
