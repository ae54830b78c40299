"""A trained model, opened for analysis."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from cli.errors import UserError
from data.corpus import Corpus
from data.encoded_text import EncodedText
from data.vocabulary import UnknownCharacterError, Vocabulary
from model.gpt import GPT
from training.runs.checkpoint import Checkpoint, load_checkpoint
from training.runs.run_folder import find_checkpoint
from training.runs.starting import reopen_corpus
from training.runtime import Runtime, choose_runtime
from training.sweep.launch import is_sweep


@dataclass(frozen=True)
class OpenedModel:
    """A checkpoint, and its model on its device."""

    path: Path
    checkpoint: Checkpoint
    model: GPT
    runtime: Runtime

    @cached_property
    def vocabulary(self) -> Vocabulary:
        return self.checkpoint.vocabulary

    @cached_property
    def corpus(self) -> Corpus:
        """The text that the model was trained on. Raises UserError if it is missing or has changed."""
        return reopen_corpus(self.checkpoint, self.path)

    def split(self, part: str) -> EncodedText:
        """Return the ids of a part of the corpus; see `Corpus.split`. Raises UserError if it is empty."""
        config = self.checkpoint.config()
        ids = getattr(self.corpus.split(config.data.split, config.model.block_size), part)
        if len(ids) < 2:
            raise UserError(
                f"{self.path} has no {part} split (data.split={list(config.data.split)}); train with a split such as "
                "data.split=[0.81, 0.09, 0.1]"
            )
        return ids

    @property
    def name(self) -> str:
        """The name of the run, preceded by the name of its sweep if it has one."""
        if not self.run_folder:
            return self.path.stem
        folder = self.run_folder.resolve()
        return f"{folder.parent.name}-{folder.name}" if is_sweep(folder.parent) else folder.name

    @property
    def run_folder(self) -> Path | None:
        """The folder of the run, or None if the checkpoint lies elsewhere."""
        folder = self.path.parent.parent
        return folder if (folder / "config.yaml").is_file() else None

    def opening(self, length: int) -> str:
        """Return the first `length` characters or bytes of the validation split, as a text that `encode` accepts."""
        ids = self.split("validation")[1 : 1 + length]
        if self.vocabulary.unit == "byte":
            return ids.tobytes().decode("utf-8", "surrogateescape")  # `encode` restores the first bytes of a character
        return self.vocabulary.decode(ids)

    def encode(self, text: str) -> np.ndarray:
        """Return the ids (T,) of a text. Raises UserError if its length or one of its characters is invalid."""
        try:
            ids = self.vocabulary.encode(text)
        except UnknownCharacterError as error:
            raise UserError(
                f"the text, character {error.position + 1}: {error} of {self.path}; give a --text without it"
            ) from None
        longest = self.model.config.block_size
        if not 2 <= len(ids) <= longest:
            raise UserError(
                f"the text has {len(ids)} {self.vocabulary.unit}s; give --text 2 to {longest}, the context length of "
                f"{self.path}"
            )
        return ids


def open_model(path: Path | None, device: str) -> OpenedModel:
    """Open a checkpoint, the best of a run folder, or that of the newest run; see `find_checkpoint`."""
    path = find_checkpoint(path)
    checkpoint = load_checkpoint(path)
    runtime = choose_runtime(device, checkpoint.config().train.dtype)
    return OpenedModel(path, checkpoint, checkpoint.build_model().to(runtime.device), runtime)
