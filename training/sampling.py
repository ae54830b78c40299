"""Sample text from a model: the one path from a prompt to characters and text, for every command."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from data.vocabulary import Vocabulary
from model.generate import Sampling, generate
from model.gpt import GPT
from training.evaluation import evaluation_mode


def use_one_thread() -> None:
    """Compute on one thread from now on: one character is too little work to share."""
    torch.set_num_threads(1)


@dataclass(frozen=True)
class TextSampler:
    """Continue a prompt: encode it, draw ids for each stream, and decode them."""

    model: GPT
    vocabulary: Vocabulary
    sampling: Sampling

    def stream(
        self, prompt: str, length: int, *, seed: int = 0, streams: range = range(1), stops: Sequence[str] = ()
    ) -> Iterator[list[str]]:
        """Yield the pieces of the continuations, without the prompt: one of each stream at a time.

        The continuations have `length` characters, or end before their first stop text. A piece is the next character,
        or empty while more characters decide whether a stop text follows. streams: their numbers; a continuation
        depends on the prompt, the seed and its number only. An empty prompt means the start of a line.
        Raises UnknownCharacterError if a character of the prompt is not in the vocabulary.
        """
        encoded = self.vocabulary.encode(prompt or self.vocabulary.default_prompt).astype(np.int64)
        ids = torch.from_numpy(encoded)[None].to(self.model.lm_head.weight.device)  # (1, T)
        texts = [StopText(stops) for _ in streams]
        with evaluation_mode(self.model):
            for drawn in generate(self.model, ids, length, sampling=self.sampling, seed=seed, streams=streams):
                characters = self.vocabulary.decode(drawn.tolist())
                yield [text.add(character) for text, character in zip(texts, characters, strict=True)]
                if all(text.reached for text in texts):
                    return
        yield [text.end() for text in texts]

    def text(self, prompt: str, length: int, *, seed: int = 0, stops: Sequence[str] = ()) -> str:
        """Return the continuation of a single stream."""
        return "".join(piece for (piece,) in self.stream(prompt, length, seed=seed, stops=stops))


class StopText:
    """A filter that passes characters on up to the first stop text and holds back those that may begin one."""

    def __init__(self, stops: Sequence[str]):
        self.stops, self.held, self.reached = stops, "", False

    def add(self, character: str) -> str:
        """Return the characters that can be passed on now."""
        if self.reached:
            return ""
        self.held += character
        lengths = [len(stop) for stop in self.stops if self.held.endswith(stop)]
        self.reached = bool(lengths)
        begun = (n for stop in self.stops for n in range(len(stop)) if self.held.endswith(stop[:n]))
        n_passed = len(self.held) - max(lengths or begun, default=0)
        passed, self.held = self.held[:n_passed], self.held[n_passed:]
        return passed

    def end(self) -> str:
        """Return what is held back, which is no stop text."""
        return "" if self.reached else self.held
