"""Sample text from a model: the one path from a prompt to characters, for every command."""

from collections.abc import Iterator

import torch

from data.vocabulary import Vocabulary
from model.generate import Sampling, generate
from model.gpt import GPT
from training.evaluation import evaluation_mode

DEFAULT = Sampling(temperature=0.8)


def stream_text(
    model: GPT,
    vocabulary: Vocabulary,
    prompt: str,
    length: int,
    *,
    sampling: Sampling,
    seed: int,
    n_samples: int = 1,
    first: int = 0,
) -> Iterator[list[str]]:
    """Yield `length` times the next character of each of n_samples continuations of the prompt.

    With a vocabulary of bytes, `length` counts bytes, and the text of a byte is empty until its character is complete.
    first: the number of the first continuation; each depends on the seed and its number only. An empty prompt means the
    start of a line. The model's training mode is restored at the end. Raises UnknownCharacterError if a character of
    the prompt is not in the vocabulary.
    """
    ids = torch.from_numpy(vocabulary.encode(prompt or vocabulary.default_prompt)).long()
    prompts = ids.to(model.lm_head.weight.device).expand(n_samples, -1)  # (B, T)
    decoders = [vocabulary.stream_decoder() for _ in range(n_samples)]
    with evaluation_mode(model):
        for next_ids in generate(model, prompts, length, sampling=sampling, seed=seed, first_stream=first):
            yield [decode(i) for decode, i in zip(decoders, next_ids.tolist(), strict=True)]


def sample_text(
    model: GPT, vocabulary: Vocabulary, prompt: str, length: int, *, seed: int, sampling: Sampling = DEFAULT
) -> str:
    """Return one continuation of the prompt, without the prompt; see `stream_text`."""
    pieces = stream_text(model, vocabulary, prompt, length, sampling=sampling, seed=seed)
    return "".join(character for (character,) in pieces)
