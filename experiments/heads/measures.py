"""What heads attend to: their weights in windows of a text, and the means of what is measured there."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from data.batches import Ids
from data.vocabulary import Vocabulary, code_points
from model.gpt import GPT
from training.trained_model import weights_of

Window = tuple[Tensor, str]  # attention weights (N, T, T) of N heads for a text of T characters, and the text

LINE_START = re.compile(r"\n(?=(.))", re.DOTALL)  # the start of the first line in a window is unknown
# In a play, the line that names the next speaker: after an empty line, with a colon at its end.
SPEAKER = re.compile(r"\n\n([^\n:]+):\n")

# The targets, the characters over which a head's weight is summed, and the role of a head that prefers one, in words.
TARGETS = {
    "on itself": "itself",
    "on previous": "previous character",
    "on same earlier": "same character before",
    "on what followed it": "what followed it before",  # induction (Olsson et al., 2022)
    "on line start": "start of line",
    "on speaker name": "speaker's name",
}
LEAST = 0.2  # a head has a role if the excess over uniform attention is at least this share of the possible excess


@dataclass(frozen=True)
class HeadMeasures:
    """Measures of N heads, layer by layer: means over the characters of windows, without each window's first.

    figures: by name, each (N,):
      "entropy, bits": of the weights; 0 for a head that attends to one character, log2(t) for equal weights on t.
      "characters back": mean number of characters that the head looks back, by weight.
      each of TARGETS: the weight on it, over the characters that have such a target in their window; NaN if none has.
      "scale": see `scales_of`.
    uniform: the weight on each of TARGETS of a head with equal weights; a head prefers a target only if it has more.
    """

    figures: dict[str, Tensor]
    uniform: dict[str, float]
    n_characters: int


def read_windows(model: GPT, vocabulary: Vocabulary, ids: Ids, n: int) -> Iterator[Window]:
    """Yield n windows of block_size ids, spread evenly over ids; fewer if they would overlap."""
    T = model.config.block_size
    starts = np.linspace(0, len(ids) - T, num=min(n, len(ids) // T), dtype=np.int64)
    for start in tqdm(starts, desc="Measuring heads", disable=None, leave=False):
        window = ids[start : start + T]
        weights = weights_of(model, torch.from_numpy(window.astype(np.int64))[None])
        yield torch.cat(weights), vocabulary.decode(window.tolist())


def scales_of(model: GPT) -> Tensor | None:
    """Return the scale s of every head (N,), see `QueryKeyNorm`, or None if scores are not s cos(q, k)."""
    if not model.config.qk_norm or model.config.score != "scaled_dot":
        return None
    norms = [block.attention.qk_norm for block in model.blocks]
    scales = [norm.log_scale.detach().exp() for norm in norms if norm and norm.log_scale is not None]
    return torch.cat(scales).double().cpu()


def measure_heads(windows: Iterable[Window], scales: Tensor | None = None) -> HeadMeasures:
    """Measure N heads on windows. scales (N,): their scales, if they have any."""
    n = 0
    sums = defaultdict[str, Any](float)  # of float64 tensors
    uniform_sums = defaultdict[str, float](float)
    counts = Counter[str]()  # of the characters that have each target
    for weights, text in windows:
        T = len(text)
        position = torch.arange(T, dtype=torch.float64)
        n += T - 1
        rows = weights[:, 1:]  # the first character sees only itself
        sums["entropy, bits"] += _total(torch.special.entr(rows)) / np.log(2)
        sums["characters back"] += _total(rows * (position[1:, None] - position).float())
        equal = torch.ones(T, T, dtype=torch.float64).tril() / (position[:, None] + 1)
        for name, mask in target_masks(text).items():
            mask[0] = False
            counts[name] += int(mask.any(-1).sum())
            sums[name] += _total(weights * mask)
            uniform_sums[name] += float((equal * mask).sum())
    figures = {name: total / (counts.get(name, n) or np.nan) for name, total in sums.items()}
    if scales is not None:
        figures["scale"] = scales
    uniform = {name: total / (counts[name] or np.nan) for name, total in uniform_sums.items()}
    return HeadMeasures(figures, uniform, n)


def _total(values: Tensor) -> Tensor:
    """Sum values (N, T, S) of N heads in float64."""
    return values.sum((-1, -2), dtype=torch.float64)


def target_masks(text: str) -> dict[str, Tensor]:
    """Return for each of TARGETS a mask (T, T): whether the column is a target of the row."""
    ids = torch.from_numpy(code_points(text).astype(np.int64))
    itself = torch.eye(len(text), dtype=torch.bool)
    past = torch.ones_like(itself).tril(-1)  # strictly before the row
    same = (ids[:, None] == ids) & past
    return {
        "on itself": itself,
        "on previous": itself.roll(-1, dims=1) & past,
        "on same earlier": same,
        "on what followed it": same.roll(1, dims=1) & past,  # in "oo", the follower of the first o is the second itself
        "on line start": _newest(LINE_START, text),
        "on speaker name": _newest(SPEAKER, text),
    }


def _newest(pattern: re.Pattern, text: str) -> Tensor:
    """Return a mask (T, T): whether the column is in the group of the pattern's newest match before the row."""
    mask = torch.zeros(len(text), len(text), dtype=torch.bool)
    for match in pattern.finditer(text):
        mask[match.end() :] = False  # the new match replaces the old one
        mask[match.end() :, slice(*match.span(1))] = True
    return mask


def role_of(measures: HeadMeasures, head: int) -> tuple[str, str]:
    """Return the role of a head in words, and the figure that shows it.

    It is the target with the largest excess over uniform attention, if this is at least LEAST of the possible excess.
    """
    figures = {name: float(measures.figures[name][head]) for name in TARGETS}
    excess = {name: (w - u) / (1 - u) for name, w in figures.items() if (u := measures.uniform[name]) < 1 and w >= 0}
    best = max(excess, key=excess.__getitem__, default="")
    if best and excess[best] >= LEAST:
        return TARGETS[best], f"{figures[best]:.2f}"
    return "no fixed target", f"{float(measures.figures['entropy, bits'][head]):.1f} bits"
