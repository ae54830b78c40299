"""Train the one-file GPT on the bundled play and print a sample: python -m experiments.textbook"""

import time
from argparse import Namespace

import torch

from cli.command import run_command
from data.sources import BUNDLED
from experiments.command import command, option, positive, whole
from model.textbook.gpt import TextbookGPT, decode, encode, sample, train

SIZES = {"n_layer": 4, "n_head": 4, "n_embd": 128, "block_size": 64}
BATCH_SIZE, LR, SAMPLE_LENGTH, LOG_EVERY_S = 16, 1e-3, 400, 5


@command(
    "experiments.textbook",
    __doc__,
    option("--seconds", type=positive, default=60, metavar="S", help="train for S seconds (%(default)s)"),
    option("--steps", type=whole(1), metavar="N", help="train for N steps instead of S seconds"),
    option("--seed", type=whole(0), default=0, metavar="N", help="random seed (%(default)s)"),
)
def main(options: Namespace) -> None:
    torch.manual_seed(options.seed)
    text = (BUNDLED / "selmere.txt").read_text(encoding="utf-8")
    characters = "".join(sorted(set(text)))
    ids = encode(text, characters)
    model = TextbookGPT(len(characters), **SIZES)
    n_parameters = sum(p.numel() for p in model.parameters())
    print(f"{len(text):,} characters, {len(characters)} distinct; {n_parameters:,} parameters", flush=True)
    began_s = last_s = time.perf_counter()
    losses = []
    for step, loss in enumerate(train(model, ids, batch_size=BATCH_SIZE, lr=LR), start=1):
        losses.append(loss)
        now_s = time.perf_counter()
        is_last = step >= options.steps if options.steps else now_s - began_s >= options.seconds
        if is_last or now_s - last_s >= LOG_EVERY_S:
            mean = sum(losses) / len(losses)
            print(f"step {step:,}  training loss {mean:.4f}  {now_s - began_s:.0f} s", flush=True)
            last_s, losses = now_s, []
        if is_last:
            break
    start = encode("\n", characters)
    print(f"\nSample:\n{decode(sample(model, start, SAMPLE_LENGTH), characters)}")


if __name__ == "__main__":
    run_command(main)
