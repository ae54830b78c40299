"""Chapter 9: how do the parts form a whole GPT? Here it is in one file, with attention, training and sampling.

Read it from top to bottom. The layers are those of GPT-2 (Radford et al., 2019), without biases and dropout. A block
adds attention, then a small network to its input; before each, a LayerNorm brings the channels of each position to mean
0 and variance 1. Logits are the scores of the next characters. Shapes: B sequences of T characters (at most
block_size), each a vector of C = n_embd numbers, called channels; H = n_head heads of D = head_size channels; V =
vocab_size characters in the vocabulary.

Next: python train.py --config configs/selmere.yaml trains the GPT of this project, which `model/README.md` explains;
`textbook/README.md` shows what attention is for, beside a table of the last characters.
"""

from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def encode(text: str, characters: str) -> Tensor:
    """Turn a text into ids (T,): the id of a character is its place in `characters`."""
    id_of = {character: i for i, character in enumerate(characters)}
    return torch.tensor([id_of[character] for character in text])


def decode(ids: Tensor, characters: str) -> str:
    """Turn ids (T,) back into text."""
    return "".join(characters[i] for i in ids.tolist())


class Head(nn.Module):
    """Each position looks for something (query), offers something (key), and passes something on (value).

    (B, T, C) -> (B, T, D), for T up to block_size.
    """

    tril: Tensor

    def __init__(self, n_embd: int, head_size: int, block_size: int):
        super().__init__()
        self.query = nn.Linear(n_embd, head_size, bias=False)
        self.key = nn.Linear(n_embd, head_size, bias=False)
        self.value = nn.Linear(n_embd, head_size, bias=False)
        self.register_buffer("tril", torch.tril(torch.ones(block_size, block_size)), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        T = x.size(1)
        q, k, v = self.query(x), self.key(x), self.value(x)  # (B, T, D) each
        scores = q @ k.transpose(1, 2) / k.size(-1) ** 0.5  # (B, T, T); / sqrt(D) keeps their variance near 1
        scores = scores.masked_fill(self.tril[:T, :T] == 0, float("-inf"))  # hide the future
        weights = F.softmax(scores, dim=-1)  # each row sums to 1
        return weights @ v  # (B, T, D)


class TextbookAttention(nn.Module):
    """Several heads side by side, and a linear map that mixes their results."""

    def __init__(self, n_embd: int, n_head: int, block_size: int):
        super().__init__()
        self.heads = nn.ModuleList(Head(n_embd, n_embd // n_head, block_size) for _ in range(n_head))
        self.proj = nn.Linear(n_embd, n_embd, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.cat([head(x) for head in self.heads], dim=-1)  # (B, T, H D) = (B, T, C)
        return self.proj(y)


class TextbookBlock(nn.Module):
    """Attention moves information between positions; the feed-forward network works on each position alone."""

    def __init__(self, n_embd: int, n_head: int, block_size: int):
        super().__init__()
        self.attention_norm = nn.LayerNorm(n_embd, bias=False)
        self.attention = TextbookAttention(n_embd, n_head, block_size)
        self.feed_forward_norm = nn.LayerNorm(n_embd, bias=False)
        self.up = nn.Linear(n_embd, 4 * n_embd, bias=False)
        self.down = nn.Linear(4 * n_embd, n_embd, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        hidden = F.gelu(self.up(self.feed_forward_norm(x)))  # (B, T, 4 C)
        return x + self.down(hidden)  # (B, T, C)


class TextbookGPT(nn.Module):
    """ids (B, T) -> logits (B, T, V): at each position, a score for every possible next character.

    Raises ValueError if n_head does not divide n_embd, or T is above block_size.
    """

    def __init__(self, vocab_size: int, *, n_layer: int, n_head: int, n_embd: int, block_size: int):
        super().__init__()
        if n_embd % n_head:
            raise ValueError(f"n_head={n_head} does not divide n_embd={n_embd}")
        self.block_size = block_size
        self.token_embedding = nn.Embedding(vocab_size, n_embd)
        self.position_embedding = nn.Embedding(block_size, n_embd)
        self.blocks = nn.Sequential(*(TextbookBlock(n_embd, n_head, block_size) for _ in range(n_layer)))
        self.norm = nn.LayerNorm(n_embd, bias=False)
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        T = ids.size(1)
        if self.block_size < T:
            raise ValueError(f"ids has {T} characters; block_size is {self.block_size}: raise it or shorten ids")
        positions = torch.arange(T, device=ids.device)  # (T,)
        x = self.token_embedding(ids) + self.position_embedding(positions)  # (B, T, C)
        x = self.norm(self.blocks(x))
        return self.lm_head(x)  # (B, T, V)


def random_windows(ids: Tensor, batch_size: int, block_size: int) -> tuple[Tensor, Tensor]:
    """Cut inputs (B, T) from a text at random places, and targets (B, T): the character after each input."""
    starts = torch.randint(len(ids) - block_size, (batch_size, 1))  # (B, 1)
    windows = ids[starts + torch.arange(block_size + 1)]  # (B, T + 1)
    return windows[:, :-1], windows[:, 1:]  # (B, T) each


def train(model: TextbookGPT, ids: Tensor, *, batch_size: int, lr: float) -> Iterator[float]:
    """Train without end; each step yields its loss, in nats per character."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    while True:
        inputs, targets = random_windows(ids, batch_size, model.block_size)
        logits = model(inputs)  # (B, T, V)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())  # (B T, V) against (B T,)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


@torch.no_grad()
def sample(model: TextbookGPT, ids: Tensor, length: int) -> Tensor:
    """Continue ids (T,) by `length` characters, each drawn from the model's probabilities: (T + length,)."""
    for _ in range(length):
        context = ids[-model.block_size :]  # (min(T, block_size),)
        logits = model(context[None])[0, -1]  # (V,): scores for the character after the last one
        probabilities = F.softmax(logits, dim=-1)
        ids = torch.cat((ids, torch.multinomial(probabilities, 1)))  # (T + 1,)
    return ids


def show(steps: int = 1500) -> Iterator[str]:
    """Train a GPT on the play in data/bundled, and write."""
    yield f"Training a GPT, {steps:,} steps; 1,500 take about a minute."
    torch.manual_seed(0)
    text = (Path(__file__).parents[1] / "data/bundled/selmere.txt").read_text(encoding="utf-8")
    characters = "".join(sorted(set(text)))
    model = TextbookGPT(len(characters), n_layer=4, n_head=4, n_embd=128, block_size=64)
    ids = encode(text, characters)
    n_train = len(ids) * 9 // 10
    losses = train(model, ids[:n_train], batch_size=16, lr=1e-3)
    for step in range(1, steps + 1):
        loss = next(losses)
        if step % 100 == 0 or step == steps:
            yield f"step {step:,}/{steps:,}  training loss {loss:.4f}"
    inputs, targets = random_windows(ids[n_train:], 64, model.block_size)
    val_loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
    yield f"validation loss {val_loss.item():.4f}, on 64 windows that were not trained on"
    yield "\nSample:\n" + decode(sample(model, encode("\n", characters), 400), characters)
