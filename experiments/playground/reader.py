"""What a model makes of a text: predictions, surprise, attention and the lens, each by its one forward path."""

import contextlib
import math
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from experiments.heads.measures import HeadMeasures
from experiments.heads.model_access import HeadIndex, all_heads
from experiments.heads.silence import NGRAMS, silenced
from experiments.heads.viewer import viewer_data, visible
from model.generate import Sampler, Sampling, window_start
from training.sampling import TextSampler
from training.trained_model import TrainedModel, look_inside

SHOWN, IN_LENS = 10, 3  # characters in a list of predictions, and in one of a layer's


class Reader:
    """A model that answers the requests about a text, in float32 and one at a time.

    off: what to silence, by its place in `parts`: the heads and, if the model has it, the memory of n-grams.
    """

    def __init__(self, trained: TrainedModel):
        self.trained, self.model = trained, trained.model
        self.heads = all_heads(self.model)
        self.parts: list[HeadIndex | str] = [*self.heads, *([NGRAMS] if self.model.ngrams else [])]
        self.labels = [visible(c, trained.vocabulary.unit) for c in trained.vocabulary.characters]
        self._lock = threading.Lock()

    @torch.inference_mode()
    def read(self, text: str, off: Sequence[int] = ()) -> dict[str, Any]:
        """Return the likeliest next characters, and the surprise, in bits, of each character in the context window.

        Raises UserError if the model does not know a character.
        """
        ids, start = self._window(text)
        inputs = torch.from_numpy(ids.astype(np.int64))
        with self._turn(off):
            logits = self.model(inputs[None].to(self.model.lm_head.weight.device))[0]  # (T, V)
        log_probabilities = logits.cpu().double().log_softmax(-1)
        scored = log_probabilities[:-1].gather(1, inputs[1:, None])[:, 0]
        return {
            "next": self._likeliest(log_probabilities[-1].exp(), SHOWN),
            "text": list(self.trained.vocabulary.spell(ids)),
            "shown": [self.labels[i] for i in ids],
            "start": start,
            "bits": [None, *(-scored / math.log(2)).tolist()],
            "nats": -scored.sum().item(),
        }

    def write(
        self, text: str, length: int, sampling: Sampling, seed: int, stop: str, off: Sequence[int]
    ) -> Iterator[str]:
        """Yield the pieces of a continuation, those of `sample.py`. Other requests get a turn after each character."""
        vocabulary = self.trained.vocabulary
        vocabulary.encode(stop)
        sampler = TextSampler(Sampler(self.model, 1, sampling=sampling), vocabulary)
        pieces = sampler.stream(text, length, seed=seed, stops=[stop] if stop else [])
        while True:
            with self._turn(off):
                piece = next(pieces, None)
            if piece is None:
                return
            yield piece[0]

    @torch.inference_mode()
    def look_inside(self, text: str, off: Sequence[int] = (), measures: HeadMeasures | None = None) -> dict[str, Any]:
        """Return the viewer's data of all attention weights, and what each layer would predict at each position."""
        ids, _ = self._window(text)
        with self._turn(off):
            inside = look_inside(self.model, ids)
        weights = torch.cat([each[0] for each in inside.weights]).float().cpu()  # (N, T, T)
        lens = [self.model.predict(x)[0].softmax(-1).cpu() for x in inside.outputs]  # of each layer (T, V)
        return {
            "viewer": viewer_data(self.heads, weights, self.trained.vocabulary.spell(ids), measures),
            "lens": [[self._likeliest(row, IN_LENS) for row in layer] for layer in lens],
        }

    @contextlib.contextmanager
    def _turn(self, off: Sequence[int]) -> Iterator[None]:
        """Wait until no other request uses the model, and silence heads meanwhile."""
        with self._lock, silenced(self.model, [self.parts[i] for i in off]):
            yield

    def _likeliest(self, probabilities: Tensor, n: int) -> list[tuple[str, str, float]]:
        """Return label, text and probability of the n likeliest characters."""
        values, ids = probabilities.topk(min(n, len(probabilities)))
        vocabulary = self.trained.vocabulary
        texts = ["" if vocabulary.unit == "byte" and c > "~" else c for c in vocabulary.characters]
        return [(self.labels[i], texts[i], round(p, 6)) for p, i in zip(values.tolist(), ids.tolist(), strict=True)]

    def _window(self, text: str) -> tuple[np.ndarray, int]:
        """Return the ids (T,) that the next character is predicted from, and where they start in the text."""
        vocabulary = self.trained.vocabulary
        ids = vocabulary.encode(text or vocabulary.default_prompt)
        start = window_start(len(ids), self.model.config.block_size)
        return ids[start:], start
