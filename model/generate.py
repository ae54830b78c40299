"""Writing: one character after another, each drawn from the model's guess about what comes next."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from model.cache import KVCache
from model.cuda_graph import CapturedFunction
from model.decode import Decoder
from model.gpt import GPT

LOWEST_TEMPERATURE = 1e-6  # below it, logits would overflow and only the likeliest character could be drawn
DRAWS_AHEAD = 1024  # random numbers are made in portions, so that memory does not grow with the length


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How a character is drawn from logits.

    temperature divides the logits; 0 takes the likeliest character. The filters then keep, one after the other:
    top_k: the k likeliest (Fan et al., 2018); any k of the vocabulary's size or more keeps all.
    top_p: the likeliest whose probabilities first reach p together (nucleus: Holtzman et al., 2020); 1 keeps all.
    min_p: those at least min_p times as likely as the likeliest (Nguyen et al., 2024); 0 keeps all.

    Raises ValueError where a value is out of its range.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0

    def __post_init__(self):
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature={self.temperature} must be 0 (always the likeliest) or above")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k={self.top_k} must be at least 1")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p={self.top_p} must be above 0 and at most 1")
        if not 0 <= self.min_p <= 1:
            raise ValueError(f"min_p={self.min_p} must be at least 0 and at most 1")

    def probabilities(self, logits: Tensor) -> Tensor:
        """Probabilities (B, V) of each character, from logits (B, V)."""
        if self.temperature < LOWEST_TEMPERATURE:
            return torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
        logits = logits / self.temperature
        if self.top_k is not None and self.top_k < logits.size(-1):
            kth = logits.topk(self.top_k, dim=-1).values[:, -1:]
            logits = logits.masked_fill(logits < kth, float("-inf"))
        probabilities = logits.softmax(-1)
        if self.top_p < 1:
            descending, order = torch.sort(probabilities, dim=-1, descending=True, stable=True)
            reached_before = descending.cumsum(-1) - descending >= self.top_p
            reached_before[:, 0] = False
            probabilities = probabilities.masked_fill(reached_before.gather(-1, order.argsort(-1)), 0.0)
        if self.min_p > 0:
            floor = self.min_p * probabilities.amax(-1, keepdim=True)
            probabilities = probabilities.masked_fill(probabilities < floor, 0.0)
        return probabilities / probabilities.sum(-1, keepdim=True)


@torch.inference_mode()
def generate(
    model: GPT,
    prompt: Tensor,
    length: int,
    *,
    sampling: Sampling = Sampling(),
    seed: int = 0,
    use_cache: bool = True,
) -> Iterator[Tensor]:
    """Yields `length` times the next ids (B,) after prompt (B, T), T >= 1: B streams that continue it independently.

    Stream i is drawn with random numbers that follow from (seed, i), so it is the same however many others there are.
    What a character is predicted from follows from its place alone (see `window_start`), so the text is the same with
    the cache and without, also past block_size. Memory does not grow with the length.
    """
    if prompt.size(1) < 1:
        raise ValueError("prompt must hold at least one character")
    B, device = prompt.size(0), prompt.device
    block_size = model.config.block_size
    cache = KVCache(model.config, B, dtype=model.head.weight.dtype, device=device) if use_cache else None
    draws = _uniform_draws(seed, B, device)
    read_and_draw = ReadAndDraw(model, cache, sampling) if use_cache and Decoder.can_decode(model) else None
    n_seen = prompt.size(1)
    start = window_start(n_seen, block_size)
    context = prompt[:, start:]  # what the next character is predicted from
    unseen = context  # the part of it that the cache does not hold yet
    for _ in range(length):
        if read_and_draw and unseen.size(1) == 1:
            ids = read_and_draw(unseen[:, 0], next(draws))
        else:
            logits = model(unseen, cache) if use_cache else model(context)  # (B, T, V)
            ids = _draw(sampling.probabilities(logits[:, -1]), next(draws))
        yield ids
        n_seen += 1
        context = torch.cat((context, ids[:, None]), dim=1)
        unseen = ids[:, None]
        if (new_start := window_start(n_seen, block_size)) > start:
            context = context[:, new_start - start :]
            start, unseen = new_start, context
            if cache is not None:
                cache.clear()


class ReadAndDraw:
    """The step that is repeated: reads a character of each stream into the cache and draws the one after it.

    (ids (B,), numbers (B,) from (0, 1]) -> ids (B,). On a GPU the step is captured in a CUDA graph.
    """

    def __init__(self, model: GPT, cache: KVCache, sampling: Sampling):
        self.cache = cache
        on_gpu = model.head.weight.device.type == "cuda"
        self.decoder = decoder = Decoder(model, cache, fixed_shapes=on_gpu)

        def step(ids: Tensor, uniform: Tensor) -> Tensor:
            return _draw(sampling.probabilities(decoder(ids)), uniform)

        self.step, self.captured = step, None
        if on_gpu:
            self.drawn = drawn = torch.zeros(cache.batch_size, dtype=torch.long, device=model.head.weight.device)
            # Closed over local names alone: in a cycle of references, graph and cache would outlive the text.
            self.captured = CapturedFunction(lambda ids, uniform: drawn.copy_(step(ids, uniform)))

    def __call__(self, ids: Tensor, uniform: Tensor) -> Tensor:
        if self.captured is None:
            return self.step(ids, uniform)
        self.decoder.follow_cache()
        self.captured(ids, uniform)
        self.cache.advance()
        return self.drawn.clone()


def window_start(n_seen: int, block_size: int) -> int:
    """Where the context of the next character starts, with n_seen characters before it.

    At 0 until the window of block_size is full. From then on the window moves on by half its size whenever it is full,
    and what it then holds is read anew: positions count from the window's start, so each character costs one position
    between moves, and each sees at least half a window.
    """
    if n_seen <= block_size:
        return 0
    stride = max(1, block_size // 2)
    return -(-(n_seen - block_size) // stride) * stride


def _uniform_draws(seed: int, n_streams: int, device: torch.device) -> Iterator[Tensor]:
    """Numbers (n_streams,) from (0, 1], made on the CPU so that they are the same for every device."""
    # PyTorch's CPU generator takes 32 bits of a seed and drops the rest, so seed and stream are hashed into one.
    seeds = [int(np.random.SeedSequence((seed, i)).generate_state(1)[0]) for i in range(n_streams)]
    generators = [torch.Generator().manual_seed(s) for s in seeds]
    while True:
        portion = torch.stack([1 - torch.rand(DRAWS_AHEAD, generator=g) for g in generators])
        yield from portion.to(device).unbind(1)


def _draw(probabilities: Tensor, uniform: Tensor) -> Tensor:
    """Ids (B,) by inverting the cumulative probabilities (B, V) at numbers (B,) from (0, 1]."""
    cumulative = probabilities.cumsum(-1)
    # The sum may miss 1 by rounding; a share of the sum itself always falls on an id that is possible.
    share = uniform * cumulative[:, -1]
    return torch.searchsorted(cumulative, share[:, None]).squeeze(1)
