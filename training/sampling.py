"""Sample text from a model: the one path from a prompt to characters, for every command."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import nn

from data.vocabulary import Vocabulary
from model.generate import Sampler
from model.gpt import GPT
from training.evaluation import evaluation_mode


def prepare_for_sampling(model: GPT, n_samples: int) -> None:
    """Make sampling faster for the rest of the process, if the model is on a CPU. Its weights keep their values.

    Give the model no other layers or parameters afterwards.
    """
    if model.lm_head.weight.device.type == "cpu":
        for module in model.modules():
            if isinstance(module, nn.Linear):  # weights stored by columns multiply one vector up to twice as fast
                module.weight.data = module.weight.data.t().contiguous().t()
            # Python finds these sooner than through nn.Module.__getattr__.
            vars(module).update(module._modules | module._parameters)
        if n_samples == 1:
            torch.set_num_threads(1)  # one character is too little work to share


def stream_texts(
    sampler: Sampler,
    vocabulary: Vocabulary,
    prompts: Sequence[str],
    length: int,
    *,
    seed: int,
    streams: Sequence[int] | None = None,
) -> Iterator[list[str]]:
    """Return an iterator of `length` items, each with the next character of every prompt's continuation.

    The prompts have equal lengths. This call encodes; reading the iterator samples.

    With a vocabulary of bytes, `length` counts bytes, and the text of a byte is empty until its character is complete.
    streams: the numbers of the continuations, by default 0, 1, ...; each depends on its prompt, the seed and its number
    only. An empty prompt means the start of a line. The model's training mode is restored at the end. Raises
    UnknownCharacterError if a character of a prompt is not in the vocabulary.
    """
    ids = np.stack([vocabulary.encode(prompt or vocabulary.default_prompt) for prompt in prompts]).astype(np.int64)
    device_ids = torch.from_numpy(ids).to(sampler.drawn.device)  # (B, T)

    def pieces() -> Iterator[list[str]]:
        decoders = [vocabulary.stream_decoder() for _ in prompts]
        with evaluation_mode(sampler.model):
            for next_ids in sampler.generate(device_ids, length, seed=seed, streams=streams):
                yield [decode(i) for decode, i in zip(decoders, next_ids.tolist(), strict=True)]

    return pieces()


def sample_text(sampler: Sampler, vocabulary: Vocabulary, prompt: str, length: int, *, seed: int) -> str:
    """Return one continuation of the prompt, without the prompt; see `stream_texts`."""
    pieces = stream_texts(sampler, vocabulary, [prompt], length, seed=seed)
    return "".join(character for (character,) in pieces)


class StopText:
    """A filter that passes text on up to the first stop text and holds back characters that may begin one."""

    def __init__(self, stops: Sequence[str], output: Callable[[str], object]):
        self.stops, self.output = stops, output
        self.held, self.reached = "", False

    def add(self, character: str) -> None:
        if self.reached:
            return
        self.held += character
        found = [stop for stop in self.stops if self.held.endswith(stop)]
        n_held = max((n for stop in self.stops for n in range(len(stop)) if self.held.endswith(stop[:n])), default=0)
        if found:
            self.reached = True
            n_held = max(map(len, found))
        self.output(self.held[: len(self.held) - n_held])
        self.held = self.held[len(self.held) - n_held :]

    def end(self) -> None:
        if not self.reached:
            self.output(self.held)
