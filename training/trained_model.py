"""A trained model for use from Python, as experiments/README.md shows: generate, score a text, look at attention."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cli.errors import UserError
from cli.hints import PROJECT, to_paste
from data.batches import Ids
from data.corpus import Corpus, open_corpus
from data.encoded_text import read_text
from data.vocabulary import Vocabulary
from model.generate import Sampling
from model.gpt import GPT
from training.evaluation import evaluation_mode, scored_windows
from training.runs.checkpoint import Checkpoint, load_checkpoint
from training.runs.find_checkpoint import BUNDLED_MODEL, EXPORTED, find_checkpoint
from training.runs.run_folder import RUNS
from training.runtime import Runtime, choose_runtime
from training.sampling import TextSampler


@dataclass(frozen=True)
class TrainedModel:
    """A checkpoint, and its model on its device; `load_model` returns one.

    text: a file to measure the model on, in place of its corpus.
    """

    path: Path
    checkpoint: Checkpoint
    model: GPT
    runtime: Runtime
    text: Path | None = None

    @property
    def vocabulary(self) -> Vocabulary:
        return self.checkpoint.vocabulary

    @cached_property
    def corpus(self) -> Corpus:
        """The text that the model was trained on, perhaps `text`. Raises UserError if it is missing or has changed.

        Without `text`, only that of a run folder or the bundled model is opened: another file may be a stranger's.
        """
        data = self.checkpoint.config.data
        if self.text:
            data = replace(data, corpus=str(self.text), val_corpus=None)
        elif not self.run_folder and self.path.resolve() != BUNDLED_MODEL.resolve():
            raise UserError(f"{self.path} is not in a run folder, so no text that it names is read; add --text FILE")
        corpus = open_corpus(data)
        if corpus.digest != self.checkpoint.corpus["digest"]:
            advice = "leave out --split to measure all of it" if self.text else "restore the original text"
            raise UserError(f"the text {corpus.name} is not the one that {self.path} was trained on; {advice}")
        return corpus

    def split(self, part: str | None = None) -> Ids:
        """Return the ids of a part of the corpus, see `Corpus.split`. Raises UserError if it is empty.

        part: None is all of `text` or, without one, the validation split.
        """
        if self.text and not part:
            text = "".join(text for _, text in read_text(self.text, self.checkpoint.config.data.encoding))
            if len(ids := self.vocabulary.encode(text)) < 2:
                raise UserError(f"{self.text} is too short; give two characters or more")
            return ids
        config, part = self.checkpoint.config, part or "validation"
        ids = getattr(self.corpus.split(config.data.split, config.model.block_size), part)
        if len(ids) < 2:
            raise UserError(f"{self.path} has no {part} split; train with data.split=[0.81, 0.09, 0.1]")
        return ids

    @property
    def name(self) -> str:
        """The path of the run below runs/, with dashes; of another folder, its name."""
        if not self.run_folder:
            return self.path.absolute().parent.name if self.path.name == EXPORTED else self.path.stem
        folder, runs = self.run_folder.resolve(), RUNS.resolve()
        return "-".join(folder.relative_to(runs).parts) if folder.is_relative_to(runs) else folder.name

    @property
    def source(self) -> str:
        """The file and the step of the weights; if they came with the project, also how to train others."""
        train = to_paste("train.py", "--config", PROJECT / "configs/selmere.yaml")
        advice = f"; it comes with the project: train your own with {train}"
        return f"{self.path}, step {self.checkpoint.step:,}{advice if self.path == BUNDLED_MODEL else ''}"

    @property
    def run_folder(self) -> Path | None:
        """The folder of the run, or None if the checkpoint lies elsewhere."""
        checkpoints = self.path.absolute().parent  # the file may be a link
        folder = checkpoints.parent
        return folder if checkpoints.name == "checkpoints" and (folder / "config.yaml").is_file() else None

    @property
    def stops(self) -> list[str]:
        """The texts before which a sample ends: a line end if lines are texts (`data.lines`)."""
        return ["\r\n", "\n"] if self.checkpoint.config.data.lines else []

    def generate(
        self, prompt: str = "", length: int = 500, *, temperature: float = 0.8, seed: int = 0, **filters: Any
    ) -> str:
        """Return the prompt and `length` more characters, or those before a stop text, as `sample.py` prints them.

        filters: see `Sampling`. Raises UserError if the model does not know a character of the prompt, ValueError if
        a filter is out of range.
        """
        sampler = TextSampler(self.model, self.vocabulary, Sampling(temperature=temperature, **filters))
        return prompt + sampler.text(prompt, length, seed=seed, stops=self.stops)

    @torch.inference_mode()
    def log_probabilities(self, text: str) -> np.ndarray:
        """Return the natural logarithms (T - 1,), float64, of the probabilities of a text's characters but the first.

        Each is predicted from the earlier characters of its window of block_size, as `experiments.score` does: their
        mean is minus its loss. Raises UserError as `generate` does.
        """
        losses = [torch.zeros(0, dtype=torch.float64)]
        with evaluation_mode(self.model):
            windows = scored_windows(self.model, self.vocabulary.encode(text), self.runtime)
            losses += [each.flatten().cpu() for _, each in windows]
        return -torch.cat(losses).numpy()

    def attention_weights(self, text: str) -> list[Tensor]:
        """Return each layer's attention weights (H, T, T), float32, for a text of T characters, at most block_size.

        weights[h, t, s] is what head h at character t gives to character s. Raises UserError if the text is too long,
        or the model does not know one of its characters.
        """
        return weights_of(self.model, self.encode(text))

    def encode(self, text: str) -> Tensor:
        """Return the ids (1, T) of a text for `model`. Raises UserError if its length or a character is invalid."""
        ids = self.vocabulary.encode(text)
        longest = self.model.config.block_size
        if not 2 <= len(ids) <= longest:
            given = f"the text has {len(ids)} characters"
            raise UserError(f"{given}; give 2 to {longest}, the context length of {self.path}")
        return torch.from_numpy(ids.astype(np.int64))[None].to(self.runtime.device)


@torch.inference_mode()
def weights_of(model: GPT, ids: Tensor) -> list[Tensor]:
    """Return each layer's attention weights (H, T, T) for ids (1, T), float32, on the CPU."""
    weights: list[Tensor] = []
    with evaluation_mode(model):
        model(ids.to(model.lm_head.weight.device), weights=weights)
    return [each[0].float().cpu() for each in weights]


def load_model(path: Path | str | None = None, device: str = "auto", *, text: Path | None = None) -> TrainedModel:
    """Load a checkpoint, the best of a run folder, or the best that was saved last; see `find_checkpoint`.

    device: auto, cpu, cuda, cuda:1 or mps. text: see `TrainedModel`. Raises UserError if there is no such checkpoint or
    device.
    """
    file = find_checkpoint(None if path is None else Path(path))
    checkpoint = load_checkpoint(file)
    runtime = choose_runtime(device, checkpoint.config.train.dtype)
    return TrainedModel(file, checkpoint, checkpoint.build_model().to(runtime.device), runtime, text)
