"""Chapter 7: how do the parts form a whole GPT? Here it is in one file, with attention, training and sampling.

Answer to the question of chapter 6: no. After 1,000 steps, the validation loss is 2.4699, not 2.3413: long steps jump
back and forth over the best scores.

In the transformer (Vaswani et al., 2017), attention alone carries information between positions. (Some of this
project's recipes add a convolution.) It was built for translation. Today, transformers write texts and programs, answer
questions, recognise speech, and read pictures as patches. GPT, a generative pre-trained transformer, predicts what
comes next in a text, in three stages:

Embeddings: each character has a vector, a row of a learned table (inputs that are numbers, such as patches, have x W in
its place), and each place in the window of T characters that the model sees has one, too. The two are added. So the
model knows where each character stands, and need not infer it from what the mask lets others see (chapter 3).

Blocks, one after another; in each, x = x + attention(norm(x)), then x = x + MLP(norm(x)). Attention, the layer of
chapter 5 under a causal mask, gathers from other positions. The MLP (multi-layer perceptron, feed-forward network)
works on each position alone: a linear map to 4 C channels, the function GELU, which lets large numbers pass and brings
very negative ones to 0, and a linear map back. Without such a bend, two linear maps are only one. Attention averages
what it has gathered; the MLP makes new features of it. Why does a block add its input? So it only has to learn a
change, and slopes reach the first blocks, because a sum passes its slope unchanged to both terms (He et al., 2016). Why
the norm? A LayerNorm (Ba et al., 2016) brings the channels of each position to mean 0 and variance 1, and multiplies
each by a learned number. So the size of the scores does not depend on how large x has grown.

Logits: a last norm and a linear map give a score, called logit, for each possible next character; their softmax has the
probabilities. Training is that of chapter 6, with AdamW in place of plain gradient descent: it chooses the size of the
step for each parameter, as Adam does (Kingma and Ba, 2015), and shrinks all of them a little (weight decay; Loshchilov
and Hutter, 2019). A step uses a batch of B windows from random places of the text, and its loss is that of these
windows, so it goes up and down. To sample a text is to begin with a character, here a line end, to draw the next from
the probabilities, to append it, and to repeat.

In the code, C is n_embd, D is head_size, H is n_head, V is vocab_size, and T is at most block_size. For readers who
know GPT-2 (Radford et al., 2019): these are its layers without biases and dropout, with the exact GELU, not its
approximation by tanh, and with separate tables for characters and logits.

Question: what is the loss without vectors for places? In `TextbookGPT.forward`, write x = self.token_embedding(ids),
and compare the lines of step 300.

Next: python -m textbook 8 reads a second sequence. To watch a GPT learn, open page/gpt.html in a browser and press
Train, or run python train.py --config configs/page.yaml; `model/README.md` explains the project's GPT, with
its convolution and memories.
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
        scores = q @ k.transpose(1, 2) / k.size(-1) ** 0.5  # (B, T, T); / sqrt(D): their size does not grow with D
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


@torch.no_grad()
def weights_of_heads(model: TextbookGPT, ids: Tensor) -> Tensor:
    """Return the weights of each head of the first block over ids (T,): (T, H, T).

    If the value of each position is a 1 at its place and 0 elsewhere, then the output of a head is its weights.
    """
    block, places = model.blocks[0], torch.eye(len(ids))[None]  # (1, T, T)
    assert isinstance(block, TextbookBlock)
    x = block.attention_norm(model.token_embedding(ids) + model.position_embedding.weight[: len(ids)])[None]
    found = []
    for head in block.attention.heads:
        assert isinstance(head, Head)
        with head.value.register_forward_hook(lambda *_: places):
            found.append(head(x)[0])
    return torch.stack(found, dim=1)


@torch.no_grad()
def compare(model: TextbookGPT, train_ids: Tensor, val_ids: Tensor) -> tuple[float, float, int]:
    """Return the loss of a model and of a table of pairs in train_ids, over the same n characters of val_ids, and n.

    val_ids is cut into windows of block_size; the rest at its end is left out.
    """
    T, V = model.block_size, model.lm_head.out_features
    n = (len(val_ids) - 1) // T * T
    inputs, targets = val_ids[:n].view(-1, T), val_ids[1 : n + 1]
    pairs = torch.bincount(train_ids[:-1] * V + train_ids[1:], minlength=V * V).view(V, V)
    logits = (model(inputs), (pairs + 1.0).log()[inputs])  # (n / T, T, V) each
    of_model, of_table = (F.cross_entropy(y.flatten(0, 1), targets).item() for y in logits)
    return of_model, of_table, n


PLAY = Path(__file__).parents[1] / "data/bundled/selmere.txt"


def read_play() -> tuple[str, Tensor, Tensor]:
    """Return the characters of the bundled play, the ids of its first nine tenths, and those of the last."""
    text = PLAY.read_text(encoding="utf-8")
    characters = "".join(sorted(set(text)))
    ids = encode(text, characters)
    n_train = len(ids) * 9 // 10
    return characters, ids[:n_train], ids[n_train:]


def show(steps: int = 1500) -> Iterator[str | tuple]:
    """Train a GPT on the first nine tenths of the bundled play, measure it on the last, and write."""
    torch.manual_seed(0)
    characters, train_ids, val_ids = read_play()
    model = TextbookGPT(len(characters), n_layer=4, n_head=4, n_embd=128, block_size=64)
    n_parameters = sum(p.numel() for p in model.parameters())
    yield f"A GPT of 4 blocks, C = 128, H = 4, D = 32, T = 64, V = {len(characters)}: {n_parameters:,} parameters"
    yield f"Training for {steps:,} steps with B = 16; 1,500 take about a minute"
    losses = train(model, train_ids, batch_size=16, lr=1e-3)
    for step in range(1, steps + 1):
        loss = next(losses)
        if step % 100 == 0 or step == steps:
            yield f"step {step:,}/{steps:,}  training loss {loss:.4f}"
    of_model, of_table, n = compare(model, train_ids, val_ids)
    yield f"validation loss {of_model:.4f}, over {n:,} characters (windows of 64) not trained on"
    yield f"A table of pairs (chapter 6) has {of_table:.4f} over the same characters."
    line = max((line for line in decode(val_ids, characters).split("\n") if len(line) <= 16), key=len)
    weights = weights_of_heads(model, encode(line, characters))
    yield (
        "\nThe heads of the first block: what the character of a row reads",
        weights,
        line,
        4 * line,
    )
    yield "Sample:\n" + decode(sample(model, encode("\n", characters), 400), characters)
