"""Chapter 7, applied: what can one file do? It learns the play in data/ for a minute, and writes."""

import time
from argparse import Namespace
from collections.abc import Iterator

import torch

from data.sources import BUNDLED
from model.textbook.chapter7b_gpt import TextbookGPT, decode, encode, sample, train

SIZES = {"n_layer": 4, "n_head": 4, "n_embd": 128, "block_size": 64}
BATCH_SIZE, LR, SAMPLE_LENGTH, LOG_EVERY_S = 16, 1e-3, 400, 5


def show(options: Namespace) -> Iterator[tuple[str, str]]:
    """Yield the losses of the training and a sample."""
    torch.manual_seed(options.seed)
    text = (BUNDLED / "selmere.txt").read_text(encoding="utf-8")
    characters = "".join(sorted(set(text)))
    model = TextbookGPT(len(characters), **SIZES)
    n_parameters = sum(p.numel() for p in model.parameters())
    yield "", f"{len(text):,} characters, {len(characters)} distinct; {n_parameters:,} parameters"
    began_s = last_s = time.perf_counter()
    losses = []
    for step, loss in enumerate(train(model, encode(text, characters), batch_size=BATCH_SIZE, lr=LR), start=1):
        losses.append(loss)
        now_s = time.perf_counter()
        is_last = step >= options.steps if options.steps else now_s - began_s >= options.seconds
        if is_last or now_s - last_s >= LOG_EVERY_S:
            yield "", f"step {step:,}  training loss {sum(losses) / len(losses):.4f}  {now_s - began_s:.0f} s"
            last_s, losses = now_s, []
        if is_last:
            break
    yield "", "\nSample:\n" + decode(sample(model, encode("\n", characters), SAMPLE_LENGTH), characters)
