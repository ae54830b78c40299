"""A corpus: a text as character ids, and its training, validation and test parts."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cli.errors import UserError
from data.config import DataConfig
from data.encoded_text import cached_text, combined
from data.sources import cache_folder, find_files
from data.vocabulary import Vocabulary


class Split(NamedTuple):
    """The parts of a text.

    Validation and test start one character early: that character is the context of their first prediction. Without a
    test part, `test` has this character only. A separate validation text starts with its own first character.
    """

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


@dataclass(frozen=True)
class Corpus:
    """An encoded text.

    ids: the character ids, read from a file as they are needed.
    digest: SHA-256 of the file, or of the digests of several files in order.
    n_files: the number of files that were read. n_train: the length of the training text, if the rest of ids is a
    separate validation text, whose digest is val_digest. encoding: of the files.
    """

    name: str
    digest: str
    vocabulary: Vocabulary
    ids: np.ndarray
    encoding: str
    n_files: int
    n_train: int | None = None
    val_digest: str = ""

    def split(self, split: Sequence[float], block_size: int) -> Split:
        """Return the text's three parts by `data.split`, which does not matter if there is a separate validation text.

        Raises UserError if the text is shorter than the given sizes, or a part is too short for a window of
        block_size characters and the next character.
        """
        n = len(self.ids)
        train, validation, test = split
        context = 1  # a part is preceded by the character before it
        if self.n_train is not None:
            cuts, test, context = [self.n_train, n, n], 0, 0
        elif max(split) < 1:
            # Counted from the end: [0.81, 0.09, 0.1] tests on exactly the characters that [0.9, 0.1, 0] validates on.
            cuts = [int(n * (1 - test - validation)), int(n * (1 - test)), n]
        else:
            cuts = [int(train), int(train + validation), int(train + validation + test)]
            if cuts[-1] > n:
                raise UserError(
                    f"data.split={list(split)} needs {cuts[-1]:,} characters, but {self.name} has {n:,}; lower it"
                )
        parts = {
            "training": (cuts[0], block_size + 1),
            "validation": (cuts[1] - cuts[0], block_size + 1 - context),
            "test": (cuts[2] - cuts[1], block_size if test else 0),
        }
        for name, (size, needed) in parts.items():
            if size < needed:
                text = "data.val_corpus" if self.n_train is not None and name == "validation" else self.name
                raise UserError(
                    f"{text} is too short: model.block_size={block_size} needs {needed:,} characters for {name}, "
                    f"but there are {size:,}; lower model.block_size or use a longer text"
                )
        starts = (0, cuts[0] - context, cuts[1] - 1)
        return Split(*(self.ids[start:cut] for start, cut in zip(starts, cuts, strict=True)))

    def passage(self, split: Split) -> str:
        """Return what identifies the validation part of the text, whatever its path: digest, encoding and place."""
        is_own = self.n_train is not None
        start, digest = (0, self.val_digest) if is_own else (len(split.train) - 1, self.digest)
        return f"the text {digest[:16]} in {self.encoding} from {start:,} to {start + len(split.validation):,}"


def open_corpus(config: DataConfig, *, cache: Path | None = None) -> Corpus:
    """Open the config's corpus; if the cache does not have this content, encode it first.

    Raises UserError if the text is missing, cannot be downloaded, is empty, repeats one character, is not in
    data.encoding, or lacks the lines of data.lines.
    """
    cache, val_corpus = cache or cache_folder(), config.val_corpus
    train_files = find_files(config.corpus, cache=cache)
    val_files = [] if val_corpus is None else find_files(val_corpus, cache=cache, setting="data.val_corpus")
    folder, characters = cache / "encoded", config.characters or ""
    text = cached_text(train_files + val_files, config.encoding, folder, characters=characters)
    n_train = sum(text.file_characters[: len(train_files)])
    if not n_train:
        raise UserError(f"data.val_corpus={val_corpus} is all of data.corpus={config.corpus}; name another text")
    if config.lines and "\n" not in text.characters:
        raise UserError(f"data.lines=true needs lines that end in \\n, but {config.corpus} has none")
    return Corpus(
        name=config.corpus,
        digest=combined(text.digests),
        vocabulary=Vocabulary(text.characters),
        ids=text.ids,
        encoding=config.encoding,
        n_files=sum(map(bool, text.file_characters)),
        n_train=n_train if val_files else None,
        val_digest=combined(text.digests[len(train_files) :]) if val_files else "",
    )
