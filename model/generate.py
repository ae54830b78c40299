"""Sampling text: one character after another, each drawn from the probabilities that the model predicts."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from cli.rules import Count, Fraction, Within, check_rules
from model.cache import KVCache
from model.gpt import GPT

LOWEST_TEMPERATURE = 1e-6  # a lower one counts as 0: only the likeliest could be drawn, and logits might overflow
ROUNDING = 1e-6  # tolerance for sums in float32, so that 0.5 + 0.3 reaches 0.8
UNITS = 2**30  # probabilities are rounded to multiples of 1 / UNITS
DRAWS_AHEAD = 1024  # random numbers come in portions, so that memory does not grow with the length


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Settings for drawing a character from logits.

    temperature divides the model's logits; 0 takes the likeliest character. Then three filters apply in this order:
    top_k keeps the k likeliest characters (Fan et al., 2018); None, or the vocabulary's size, keeps all.
    top_p keeps the likeliest ones whose probabilities add up to p (nucleus: Holtzman et al., 2020); 1 keeps all.
    min_p keeps those at least min_p times as likely as the likeliest (Nguyen et al., 2024); 0 keeps all.

    Raises ValueError if a value is out of range.
    """

    temperature: Annotated[float, Within(at_least=0, at_most=1_000_000)] = 1.0
    top_k: Count | None = None
    top_p: Annotated[float, Within(above=0, at_most=1)] = 1.0
    min_p: Fraction = 0.0

    def __post_init__(self):
        check_rules("", self)

    def probabilities(self, logits: Tensor) -> Tensor:
        """Return the probability of each character, (B, V), from logits (B, V)."""
        if self.temperature < LOWEST_TEMPERATURE:
            return torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
        logits = logits / self.temperature
        if self.top_k is not None and self.top_k < logits.size(-1):
            kth = logits.topk(self.top_k, dim=-1).values[:, -1:]
            logits = logits.masked_fill(logits < kth, float("-inf"))
        probabilities = logits.softmax(-1)
        if self.top_p < 1:
            descending, order = torch.sort(probabilities, dim=-1, descending=True, stable=True)
            reached_before = descending.cumsum(-1).roll(1, -1) >= self.top_p - ROUNDING
            reached_before[:, 0] = False  # keeps one
            unsorted = order.argsort(-1)  # undoes the sort
            probabilities = probabilities.masked_fill(reached_before.gather(-1, unsorted), 0.0)
        if self.min_p > 0:
            floor = self.min_p * probabilities.amax(-1, keepdim=True)
            probabilities = probabilities.masked_fill(probabilities < floor, 0.0)
        return probabilities / probabilities.sum(-1, keepdim=True)


PLAIN = Sampling()


@torch.inference_mode()
def generate(
    model: GPT, prompt: Tensor, length: int, *, sampling: Sampling = PLAIN, seed: int = 0, streams: range = range(1)
) -> Iterator[Tensor]:
    """Yield the next ids (B,), `length` times, of B streams that continue prompt (B, T), or (1, T), independently.

    streams: their numbers. The random numbers of stream i depend on (seed, i) only, so its text does not depend on the
    other streams. The context of a character depends on its position only (see `window_start`). Memory does not grow
    with the length.
    """
    weight, n_streams = model.lm_head.weight, len(streams)
    cache = KVCache(model.config, n_streams, dtype=weight.dtype, device=weight.device)
    draws = uniform_draws(seed, streams, weight.device)
    n_seen, block_size = prompt.size(1), model.config.block_size
    start = window_start(n_seen, block_size)
    unread = prompt[:, start:]  # the model reads this next: the whole context, or what the cache does not have yet
    context = [unread.expand(n_streams, -1)]
    for _ in range(length):
        probabilities = sampling.probabilities(model(unread, cache)[:, -1])
        ids = draw(probabilities.expand(n_streams, -1), next(draws))
        yield ids
        n_seen += 1
        unread = ids[:, None]
        context.append(unread)
        new_start = window_start(n_seen, block_size)
        if new_start > start:
            unread = torch.cat(context, dim=1)[:, new_start - start :]
            start, context = new_start, [unread]
            cache.length = 0  # every character has a new position in the window


def window_start(n_seen: int, block_size: int) -> int:
    """Return where the context of the next character starts, given n_seen characters before it.

    The context starts at 0 until the window of block_size is full. A full window moves forward by half its size, and
    the model reads it again, because positions count from the window's start. So each character costs one position
    between moves, and its context is at least half a window.
    """
    stride = max(1, block_size // 2)
    return max(0, math.ceil((n_seen - block_size) / stride) * stride)


def uniform_draws(seed: int, streams: range, device: torch.device) -> Iterator[Tensor]:
    """Yield numbers (B,) for B streams, from (0, 1], drawn on the CPU so that they are the same for every device."""
    # PyTorch's CPU generator uses 32 bits of a seed, so seed and stream are hashed into one number.
    seeds = [int(np.random.SeedSequence((seed, i)).generate_state(1)[0]) for i in streams]
    generators = [torch.Generator().manual_seed(s) for s in seeds]
    while True:
        portion = torch.stack([1 - torch.rand(DRAWS_AHEAD, generator=g) for g in generators])
        yield from portion.to(device).unbind(1)


def draw(probabilities: Tensor, uniform: Tensor) -> Tensor:
    """Return ids (B,) by inverting the cumulative probabilities (B, V) at numbers (B,) from (0, 1]."""
    # Sums of whole numbers are exact in any order, so a GPU draws the same characters every time.
    cumulative = (probabilities * UNITS).round().long().cumsum(-1)
    total = cumulative[:, -1]
    share = (uniform * total).ceil().long().minimum(total)  # from 1 to total: no character of probability 0 is drawn
    return torch.searchsorted(cumulative, share[:, None]).squeeze(1)
