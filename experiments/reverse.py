"""Train an encoder-decoder to reverse strings and test it on new ones: python -m experiments.reverse"""

from argparse import Namespace

import torch
import torch.nn.functional as F
from torch import Tensor

from cli.command import run_command
from experiments.command import command, option, whole
from model.textbook.encoder_decoder import EncoderDecoder

LETTERS, LONGEST = "abcdefghijkl", 10
START, END = len(LETTERS), len(LETTERS) + 1  # ids 0 to 11 are the letters
BATCH_SIZE, LR, N_TEST, N_SHOWN = 128, 2e-3, 1000, 5


def reversal_batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Draw n strings: return source ids (n, LONGEST), their padding mask, and target ids (n, LONGEST + 1).

    A string has 1 to LONGEST letters. The mask is False after its end; the target is the reversed string, then END.
    """
    lengths = torch.randint(1, LONGEST + 1, (n, 1), generator=generator)
    source = torch.randint(len(LETTERS), (n, LONGEST), generator=generator)
    places = torch.arange(LONGEST + 1)
    reversed_places = (lengths - 1 - places).clamp(min=0)
    target = torch.where(places < lengths, source.gather(1, reversed_places), END)
    return source, places[:-1] < lengths, target


def train_to_reverse(steps: int, seed: int) -> tuple[EncoderDecoder, torch.Generator, set[tuple[int, ...]]]:
    """Train a model; return it, the generator of its strings, and the targets seen in training."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = EncoderDecoder(len(LETTERS) + 2, width=64, n_head=4, n_layer=2, block_size=LONGEST + 1)
    seen: set[tuple[int, ...]] = set()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LR, total_steps=steps)
    for step in range(1, steps + 1):
        source, mask, target = reversal_batch(BATCH_SIZE, generator)
        seen.update(map(tuple, target.tolist()))
        inputs = F.pad(target[:, :-1], (1, 0), value=START)
        logits = model(source, inputs, source_padding_mask=mask)  # (B, T, V)
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 50 == 0 or step == steps:
            print(f"step {step:,}/{steps:,}  loss {loss.item():.4f}", flush=True)
    return model.eval(), generator, seen


def reverse_unseen(
    model: EncoderDecoder, generator: torch.Generator, seen: set[tuple[int, ...]]
) -> list[tuple[str, str]]:
    """Draw N_TEST strings, drop those seen in training, and return each with the model's answer."""
    source, mask, target = reversal_batch(N_TEST, generator)
    unseen = torch.tensor([tuple(row) not in seen for row in target.tolist()])
    source, mask = source[unseen], mask[unseen]
    answers = model.greedy(source, START, LONGEST + 1, source_padding_mask=mask)
    return [(_spell(string), _spell(answer)) for string, answer in zip(source.where(mask, END), answers, strict=True)]


def _spell(ids: Tensor) -> str:
    """Return the letters before END, or all letters without an END."""
    before_end = ids[: (ids == END).nonzero()[0]] if END in ids else ids
    return "".join((LETTERS + "?")[i] for i in before_end)  # START is no letter


@command(
    "experiments.reverse",
    __doc__,
    option("--steps", type=whole(1), default=600, metavar="N", help="training steps (%(default)s)"),
    option("--seed", type=whole(0), default=0, metavar="N", help="seed of weights and strings (%(default)s)"),
)
def main(options: Namespace) -> None:
    pairs = reverse_unseen(*train_to_reverse(options.steps, options.seed))
    for string, answer in pairs[:N_SHOWN]:
        print(f"{string:>{LONGEST}} -> {answer:{LONGEST}}  {'right' if answer == string[::-1] else 'wrong'}")
    n_right = sum(answer == string[::-1] for string, answer in pairs)
    print(f"{n_right} of {len(pairs)} strings that were not in the training data are reversed correctly")


if __name__ == "__main__":
    run_command(main)
