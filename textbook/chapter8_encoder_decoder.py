"""Chapter 8: what is cross-attention for? To write one sequence while reading another, as French from English.

Answer to the question of chapter 7: 2.18, not 2.11. Without places, only the mask hints at the order.

The encoder reads the source, here English; its attention has no causal mask, so each position sees all others. The
decoder writes the target, here French, as the GPT of chapter 7 does. Between attention and MLP, each of its blocks has
cross-attention to the output of the encoder, the memory: queries come from the French words so far, keys and values
from the English ones. So at each step, the decoder looks up what it needs in the source. It reads a sign for the start,
then the target: so each position predicts the next word, which it has not read.

Reversing a string is a small such task: position t of the target needs one position of the source, which depends on the
length, and the model must find out which. The last picture shows what it found: while the decoder writes from left to
right, its heads read from right to left, so the largest weights lie on the other diagonal. At the end, they read the
first letter: there is none before it. An encoder alone, such as BERT (Devlin et al., 2019), reads in both directions;
it fills gaps, but does not write on. A GPT is a decoder without cross-attention.

Question: can the decoder do without the source? In `DecoderBlock.forward`, delete the line of `self.cross_attention`,
and compare the losses.

Next: python -m textbook 9 compares queries and keys in other ways.
"""

import math
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.block import MLP
from textbook.chapter5_layer import MultiHeadAttention


class EncoderBlock(nn.Module):
    """Self-attention over all positions, then an MLP; each normalises its input and is added to x.

    The GPT normalises in the same places, and Vaswani et al. (2017) the results instead.
    """

    def __init__(self, width: int, n_head: int):
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = MultiHeadAttention(width, n_head, bias=True)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = MLP("gelu", width, bias=True, dropout=0.0)

    def forward(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        """Map x (B, S, C) to (B, S, C). padding_mask (B, S) is 0 where a key is hidden."""
        x = x + self.attention(self.attention_norm(x), padding_mask=padding_mask)
        return x + self.mlp(self.mlp_norm(x))


class DecoderBlock(nn.Module):
    """Causal self-attention, cross-attention to the encoder's output (memory), then an MLP, around sums as above."""

    def __init__(self, width: int, n_head: int):
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = MultiHeadAttention(width, n_head, bias=True)
        self.cross_norm = nn.LayerNorm(width)
        self.cross_attention = MultiHeadAttention(width, n_head, bias=True)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = MLP("gelu", width, bias=True, dropout=0.0)

    def forward(self, x: Tensor, memory: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        """Map x (B, T, C) to (B, T, C), reading a memory (B, S, C), whose padding_mask (B, S) is 0 for hidden keys."""
        x = x + self.attention(self.attention_norm(x), causal=True)
        x = x + self.cross_attention(self.cross_norm(x), memory, padding_mask=padding_mask)
        return x + self.mlp(self.mlp_norm(x))


class EncoderDecoder(nn.Module):
    """A sequence-to-sequence model over one vocabulary, with learned positions on both sides, which give order."""

    def __init__(self, vocab_size: int, *, width: int, n_head: int, n_layer: int, block_size: int):
        super().__init__()
        self.token_embedding = nn.Embedding(vocab_size, width)
        self.position_embedding = nn.Embedding(block_size, width)
        self.encoder = nn.ModuleList(EncoderBlock(width, n_head) for _ in range(n_layer))
        self.decoder = nn.ModuleList(DecoderBlock(width, n_head) for _ in range(n_layer))
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocab_size, bias=False)

    def forward(self, source: Tensor, target: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        """Return scores (logits) (B, T, V) for the id after each position of target (B, T), given source (B, S).

        padding_mask (B, S) is 0 where the source is only filled up: there, no attention reads it.
        """
        memory = self._embed(source)
        for block in self.encoder:
            memory = block(memory, padding_mask)
        memory = self.encoder_norm(memory)  # (B, S, C)
        x = self._embed(target)
        for block in self.decoder:
            x = block(x, memory, padding_mask)
        return self.lm_head(self.decoder_norm(x))

    @torch.inference_mode()
    def greedy(self, source: Tensor, start: int, length: int, padding_mask: Tensor | None = None) -> Tensor:
        """Return the likeliest ids (B, length) after `start`, one by one."""
        ids = source.new_full((len(source), 1), start)
        for _ in range(length):
            logits = self(source, ids, padding_mask)  # (B, t, V); a cache would be faster, and longer
            ids = torch.cat((ids, logits[:, -1:].argmax(-1)), dim=1)  # (B, t + 1)
        return ids[:, 1:]

    def _embed(self, ids: Tensor) -> Tensor:
        return self.token_embedding(ids) + self.position_embedding.weight[: ids.size(1)]  # (B, length, C)


LETTERS, LONGEST = "abcdefghijkl", 10
START, END = len(LETTERS), len(LETTERS) + 1  # ids 0 to 11 are the letters
BATCH_SIZE, LR, N_TEST, N_SHOWN, SHOWN = 128, 2e-3, 1000, 5, "field"


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


def spell(ids: Tensor) -> str:
    """Return the letters before END, or all letters without an END."""
    before_end = ids[: (ids == END).nonzero()[0]] if END in ids else ids
    return "".join((LETTERS + "?")[i] for i in before_end)  # START is no letter


def what_reads_what(block: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Return (T, S) with a 1 where row t of block(x (1, S, C)), (1, T, C), depends on row s of x."""
    gradients = torch.autograd.functional.jacobian(lambda x: block(x)[0].square().sum(dim=-1), x)  # (T, 1, S, C)
    return (gradients.squeeze(1) != 0).any(dim=-1).int()


def cross_attention_weights(model: EncoderDecoder, source: Tensor, target: Tensor) -> Tensor:
    """Return what each head of the last decoder block reads in source (1, S) for target (1, T): (T, H, S)."""
    block, inputs = model.decoder[-1], []
    assert isinstance(block, DecoderBlock)
    with torch.no_grad(), block.cross_attention.register_forward_pre_hook(lambda _, given: inputs.extend(given)):
        model(source, target)
        return block.cross_attention.trace(*inputs)["weights"][0].transpose(0, 1)


def show(steps: int = 300) -> Iterator[str | tuple]:
    """Show what blocks read; train a model to reverse strings, and test it on strings that it has not seen."""
    torch.manual_seed(0)
    decoder, x = DecoderBlock(8, 2), torch.randn(1, 8, 8)
    encoder = EncoderBlock(8, 2).requires_grad_(False)
    source = x[:, :4]
    yield "Encoder block: a 1 where an output (row) depends on an input (column)", what_reads_what(encoder, source)
    encoder.attention.proj.weight.zero_()
    yield "The same without attention: no other part reads other positions", what_reads_what(encoder, source)
    both = what_reads_what(lambda x: decoder(x[:, 4:], x[:, :4]), x).unflatten(1, (2, 4))
    yield "Decoder block: the source (left), and the target so far (right)", both
    n = len(LETTERS) + 2  # with signs for the start and the end
    yield (
        f"Training on strings of 1 to {LONGEST} letters from {LETTERS[0]} to {LETTERS[-1]} to reverse, {steps:,} "
        "steps; 300 take about half a minute. With signs for start and end, equal probabilities have the loss "
        f"log {n} = {math.log(n):.4f}."
    )
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    seen: set[tuple[int, ...]] = set()
    model = EncoderDecoder(n, width=64, n_head=4, n_layer=2, block_size=LONGEST + 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LR, total_steps=steps)
    for step in range(1, steps + 1):
        source, mask, target = reversal_batch(BATCH_SIZE, generator)
        seen.update(map(tuple, target.tolist()))
        inputs = F.pad(target[:, :-1], (1, 0), value=START)  # the decoder reads the target one place later
        logits = model(source, inputs, mask)  # (B, T, V)
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 50 == 0 or step == steps:
            yield f"step {step:,}/{steps:,}  loss {loss.item():.4f}"

    source, mask, target = reversal_batch(N_TEST, generator)
    unseen = torch.tensor([tuple(row) not in seen for row in target.tolist()])
    source, mask = source[unseen], mask[unseen]
    answers = model.eval().greedy(source, START, LONGEST + 1, mask)
    pairs = [(spell(s), spell(answer)) for s, answer in zip(source.where(mask, END), answers, strict=True)]
    for string, answer in pairs[:N_SHOWN]:
        yield f"{string:>{LONGEST}} -> {answer:{LONGEST}}  {'correct' if answer == string[::-1] else 'wrong'}"
    n_right = sum(answer == string[::-1] for string, answer in pairs)
    yield (
        f"Of {N_TEST:,} new random strings, {len(pairs)} were not in the training data. {n_right} of these are "
        "reversed correctly.\n"
    )
    letters = torch.tensor([[LETTERS.index(letter) for letter in SHOWN]])
    weights = cross_attention_weights(model, letters, F.pad(letters.flip(1), (1, 0), value=START))
    yield f"Cross-attention of block 2: what its heads read in {SHOWN}", weights, (*SHOWN[::-1], "end"), 4 * SHOWN
