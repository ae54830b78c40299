"""Sample text from a model: the one path from a prompt to characters, for every command."""

from collections.abc import Callable, Iterator

import torch

from data.vocabulary import Vocabulary
from model.compiled_step import CompiledStep
from model.generate import Sampling, generate
from model.gpt import GPT, store_by_columns
from training.evaluation import evaluation_mode

DEFAULT = Sampling(temperature=0.8)


def prepare_for_sampling(model: GPT, n_samples: int) -> None:
    """Make sampling faster for the rest of the process, if the model is on a CPU. Its weights keep their values."""
    if model.lm_head.weight.device.type == "cpu":
        store_by_columns(model)
        if n_samples == 1:
            torch.set_num_threads(1)  # one character is too little work to share


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
    compiler: Callable[[int, int], CompiledStep | None] | None = None,
) -> Iterator[list[str]]:
    """Yield `length` times the next character of each of n_samples continuations of the prompt.

    With a vocabulary of bytes, `length` counts bytes, and the text of a byte is empty until its character is complete.
    first: the number of the first continuation; each depends on the seed and its number only. An empty prompt means the
    start of a line. compiler: returns the compiled step for a number of texts and of characters, as a `StepCompiler`
    does. The model's training mode is restored at the end. Raises UnknownCharacterError if a character of the prompt is
    not in the vocabulary.
    """
    ids = torch.from_numpy(vocabulary.encode(prompt or vocabulary.default_prompt)).long()
    prompts = ids.to(model.lm_head.weight.device).expand(n_samples, -1)  # (B, T)
    compiled = None if compiler is None else compiler(n_samples, len(ids) + length)
    decoders = [vocabulary.stream_decoder() for _ in range(n_samples)]
    with evaluation_mode(model):
        steps = generate(model, prompts, length, sampling=sampling, seed=seed, first_stream=first, compiled=compiled)
        for next_ids in steps:
            yield [decode(i) for decode, i in zip(decoders, next_ids.tolist(), strict=True)]


def sample_text(
    model: GPT, vocabulary: Vocabulary, prompt: str, length: int, *, seed: int, sampling: Sampling = DEFAULT
) -> str:
    """Return one continuation of the prompt, without the prompt; see `stream_text`."""
    pieces = stream_text(model, vocabulary, prompt, length, sampling=sampling, seed=seed)
    return "".join(character for (character,) in pieces)
