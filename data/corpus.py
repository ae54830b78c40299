"""A corpus: a text as character ids, and its training, validation and test parts."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from data.config import DataConfig
from data.encoded_cache import cached_text
from data.encoded_text import EncodedText
from data.sources import DEFAULT_CACHE, DownloadError, find_files
from data.vocabulary import Vocabulary


class Split(NamedTuple):
    """The parts of a text.

    Validation and test start one character early: that character is the context of their first prediction. Without a
    test part, `test` has this character only.
    """

    train: EncodedText
    validation: EncodedText
    test: EncodedText


@dataclass(frozen=True)
class Corpus:
    """An encoded text.

    ids: the character ids, read from a file as they are needed.
    digest: SHA-256 of the file, or of the digests of several files in order.
    fallback_reason: why the config's fallback corpus is used; None if this is the requested corpus.
    """

    name: str
    digest: str
    vocabulary: Vocabulary
    ids: EncodedText
    fallback_reason: str | None = None

    def split(self, split: Sequence[float], block_size: int) -> Split:
        """Return the text's three parts by `data.split`.

        Raises ValueError if the text is shorter than the given sizes, or a part is too short for a window of
        block_size characters and the next character.
        """
        n = len(self.ids)
        train, validation, test = split
        if max(split) < 1:
            # Counted from the end: [0.81, 0.09, 0.1] tests on exactly the characters that [0.9, 0.1, 0] validates on.
            cuts = [int(n * (1 - test - validation)), int(n * (1 - test)), n]
        else:
            cuts = [int(train), int(train + validation), int(train + validation + test)]
            if cuts[-1] > n:
                raise ValueError(
                    f"data.split={list(split)} needs {cuts[-1]:,} characters, but {self.name} has {n:,}; lower it"
                )
        parts = {
            "training": (cuts[0], block_size + 1),
            "validation": (cuts[1] - cuts[0], block_size),
            "test": (cuts[2] - cuts[1], block_size if test else 0),
        }
        for name, (size, needed) in parts.items():
            if size < needed:
                raise ValueError(
                    f"the corpus {self.name} is too short: model.block_size={block_size} needs {needed:,} characters "
                    f"for {name}, but there are {size:,}; lower model.block_size, change data.split or use a "
                    "longer text"
                )
        train_ids, validation_ids, test_ids = map(self.ids.part, (0, cuts[0] - 1, cuts[1] - 1), cuts)
        return Split(train_ids, validation_ids, test_ids)


def open_corpus(config: DataConfig, *, cache: Path = DEFAULT_CACHE, verify: bool = False) -> Corpus:
    """Open the config's corpus or, if its download fails and the config names a fallback, the fallback.

    verify: see `cached_text`. Raises ValueError if the text is missing, empty, or not in data.encoding.
    """
    try:
        return load_corpus(config.corpus, config.encoding, cache=cache, verify=verify)
    except DownloadError as error:
        if config.fallback is None:
            raise
        reason = str(error)
        return load_corpus(config.fallback, config.encoding, cache=cache, verify=verify, fallback_reason=reason)


def load_corpus(
    name: str,
    encoding: str = "utf-8",
    *,
    cache: Path = DEFAULT_CACHE,
    verify: bool = False,
    fallback_reason: str | None = None,
) -> Corpus:
    """Open a named corpus, file, folder or glob. If the cache does not have this content, encode it first.

    verify: see `cached_text`.
    """
    folder = cache / "encoded"
    text = cached_text(find_files(name, cache=cache), encoding, folder, verify=verify)
    vocabulary, ids = text.open(folder)
    return Corpus(name, text.digest, vocabulary, ids, fallback_reason)
