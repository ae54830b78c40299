"""Ladder: what is the idea of each chapter worth? Each rung is a model with one idea more than the rung before.

Answer to the question of chapter 9: 4.9780, nearer to 5, the y of the example at 2.

All rungs read the play of chapter 7, with C = 64 channels and windows of T = 16 characters. All but the table have the
embeddings of chapter 7 and its map from x to the logits; the table below names what is between the two. Without three
maps, attention is worth next to nothing: an average mixes all that was read, and x x^T finds mostly x itself. Each rung
is trained six times. A seed decides the first parameters and the batches, and one seed gives all rungs the same
batches. The loss is measured over the whole validation split, in windows of 16, in nats.

    loss     the mean over the seeds
    spread   the highest loss of a seed, less the lowest
    change   the loss, less that of the rung before
    seeds    how many of them have a lower loss than on the rung before

Next: python -m textbook --exercise writes functions for you to fill in. python train.py --config configs/selmere.yaml
trains the GPT of this project, which `model/README.md` explains; `textbook/README.md` shows what attention is for,
beside a table of the last characters.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from statistics import mean

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from model.attention import attend
from model.scoring import Score, dot, uniform
from textbook.chapter7_gpt import Head, TextbookAttention, TextbookBlock, TextbookGPT, compare, read_play, train

C, H, T = 64, 4, 16
BATCH_SIZE, LR, SEEDS = 32, 7e-3, range(6)


class Mixture(nn.Module):
    """Attention without parameters, (B, T, C) -> (B, T, C): queries, keys and values are x itself."""

    def __init__(self, score: Score):
        super().__init__()
        self.score = score

    def forward(self, x: Tensor) -> Tensor:
        return attend(x, x, x, score=self.score, causal=True)


class Residual(nn.Module):
    """x + part(x)."""

    def __init__(self, part: nn.Module):
        super().__init__()
        self.part = part

    def forward(self, x: Tensor) -> Tensor:
        return x + self.part(x)


def block(*, norms: bool = True) -> TextbookBlock:
    result = TextbookBlock(C, H, T)
    if not norms:
        result.attention_norm = result.feed_forward_norm = nn.Identity()  # type: ignore[assignment]
    return result


# The idea, its chapters, and the parts between the embeddings and the logits.
RUNGS: list[tuple[str, str, Callable[[], list[nn.Module]]]] = [
    ("no attention", "6", list),
    ("x + average of the past", "1", lambda: [Residual(Mixture(uniform))]),
    ("x + softmax(x x^T) x", "2", lambda: [Residual(Mixture(dot))]),
    ("one head alone", "3", lambda: [Head(C, C, T)]),
    ("x + one head", "7", lambda: [Residual(Head(C, C, T))]),
    ("x + four heads, mixed by Wo", "4, 5", lambda: [Residual(TextbookAttention(C, H, T))]),
    ("then x + MLP", "7", lambda: [block(norms=False)]),
    ("with norms: a block", "7", lambda: [block(), nn.LayerNorm(C, bias=False)]),
    ("two blocks", "7", lambda: [block(), block(), nn.LayerNorm(C, bias=False)]),
]


def model_of(vocab_size: int, parts: Sequence[nn.Module]) -> TextbookGPT:
    """Return the GPT of chapter 7 with other parts between the embeddings and the logits."""
    model = TextbookGPT(vocab_size, n_layer=0, n_head=1, n_embd=C, block_size=T)
    model.blocks, model.norm = nn.Sequential(*parts), nn.Identity()  # type: ignore[assignment]
    for module in (model.token_embedding, model.position_embedding, model.lm_head):
        module.reset_parameters()  # to PyTorch's: the small ones of chapter 7 need norms, which most rungs lack
    return model


def losses(parts: Callable[[], list[nn.Module]], steps: int) -> list[float]:
    """Train a rung with each seed, and return its validation losses."""
    characters, train_ids, val_ids = read_play()
    found = []
    for seed in SEEDS:
        torch.manual_seed(seed)
        model = model_of(len(characters), parts())
        torch.manual_seed(seed)  # the same batches for all rungs, whatever they drew for their parameters
        for _ in islice(train(model, train_ids, batch_size=BATCH_SIZE, lr=LR), steps):
            pass
        found.append(compare(model, train_ids, val_ids)[0])
    return found


def show(steps: int = 800, output: Path | None = None) -> Iterator[str]:
    """Print a line for each rung; draw the losses if output names a picture."""
    characters, train_ids, val_ids = read_play()
    _, of_table, n = compare(model_of(len(characters), []), train_ids, val_ids)
    yield f"{len(RUNGS)} models, {len(SEEDS)} seeds, {steps:,} steps each; 800 take about two minutes on two cores"
    yield f"Losses over {n:,} characters that no model was trained on\n"
    yield f"{'rung':30}{'chapter':8}{'loss':>6}{'spread':>9}{'change':>9}  seeds"
    rungs = [("table of pairs", "6", [of_table] * len(SEEDS))]
    yield f"{'table of pairs':30}{'6':8}{of_table:.4f}"
    for idea, chapters, parts in RUNGS:
        before, now = rungs[-1][2], losses(parts, steps)
        rungs.append((idea, chapters, now))
        spread, change = max(now) - min(now), mean(now) - mean(before)
        n_lower = sum(a < b for a, b in zip(now, before, strict=True))
        yield f"{idea:30}{chapters:8}{mean(now):.4f}{spread:9.4f}{change:+9.4f}  {n_lower} of {len(now)}"
    if output:
        draw(output, rungs)


def draw(path: Path, rungs: Sequence[tuple[str, str, list[float]]]) -> None:
    """Draw the loss of each rung: small dots are seeds, large ones their means."""
    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.subplots()
    for i, (_, _, of_seeds) in enumerate(rungs):
        axes.plot(of_seeds, [i] * len(of_seeds), "o", color="tab:blue", markersize=3)
        axes.plot(mean(of_seeds), i, "o", color="tab:orange", markersize=8, zorder=0)
        axes.annotate(f"{mean(of_seeds):.3f}", (max(of_seeds), i), (8, 0), textcoords="offset points", va="center")
    axes.set_yticks(range(len(rungs)), [f"{idea} ({chapters})" for idea, chapters, _ in rungs])
    axes.set(xlabel="validation loss in nats per character", title="What each idea is worth (its chapter)")
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.grid(axis="y", alpha=0.3)
    figure.savefig(path, dpi=120)
