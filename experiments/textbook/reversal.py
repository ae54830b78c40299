"""Chapter 5, applied: can cross-attention learn where to read? Then a model can reverse strings that it never saw."""

from argparse import Namespace
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from model.textbook.chapter5d_encoder_decoder import EncoderDecoder

LETTERS, LONGEST = "abcdefghijkl", 10
START, END = len(LETTERS), len(LETTERS) + 1  # ids 0 to 11 are the letters
STEPS, BATCH_SIZE, LR, N_TEST, N_SHOWN = 300, 128, 2e-3, 1000, 5


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


def train(model: EncoderDecoder, steps: int, generator: torch.Generator, seen: set[tuple[int, ...]]) -> Iterator[float]:
    """Yield the loss of each step; add the targets to `seen`."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LR, total_steps=steps)
    for _ in range(steps):
        source, mask, target = reversal_batch(BATCH_SIZE, generator)
        seen.update(map(tuple, target.tolist()))
        inputs = F.pad(target[:, :-1], (1, 0), value=START)
        logits = model(source, inputs, source_padding_mask=mask)  # (B, T, V)
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        yield loss.item()


def _spell(ids: Tensor) -> str:
    """Return the letters before END, or all letters without an END."""
    before_end = ids[: (ids == END).nonzero()[0]] if END in ids else ids
    return "".join((LETTERS + "?")[i] for i in before_end)  # START is no letter


def show(options: Namespace) -> Iterator[tuple[str, str]]:
    torch.manual_seed(options.seed)
    generator, steps = torch.Generator().manual_seed(options.seed), options.steps or STEPS
    model = EncoderDecoder(len(LETTERS) + 2, width=64, n_head=4, n_layer=2, block_size=LONGEST + 1)
    seen: set[tuple[int, ...]] = set()
    for step, loss in enumerate(train(model, steps, generator, seen), start=1):
        if step % 50 == 0 or step == steps:
            yield "", f"step {step:,}/{steps:,}  loss {loss:.4f}"
    source, mask, target = reversal_batch(N_TEST, generator)
    unseen = torch.tensor([tuple(row) not in seen for row in target.tolist()])
    source, mask = source[unseen], mask[unseen]
    answers = model.eval().greedy(source, START, LONGEST + 1, source_padding_mask=mask)
    pairs = [(_spell(s), _spell(answer)) for s, answer in zip(source.where(mask, END), answers, strict=True)]
    for string, answer in pairs[:N_SHOWN]:
        yield "", f"{string:>{LONGEST}} -> {answer:{LONGEST}}  {'right' if answer == string[::-1] else 'wrong'}"
    n_right = sum(answer == string[::-1] for string, answer in pairs)
    yield "", f"{n_right} of {len(pairs)} strings that were not in the training data are reversed correctly"
