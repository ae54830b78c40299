"""Settings of the corpus: which text to train on and how to split it."""

import math
from dataclasses import dataclass
from typing import Annotated

from cli.rules import Mark, NotNegative, check_rules

DEFAULT_SPLIT = (0.9, 0.1, 0.0)


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Section `data` of a config. Raises ValueError, naming the setting, if a value is invalid."""

    # `shakespeare`, `names`, `selmere`, or a [file, folder or glob](../data/README.md)
    corpus: Annotated[str, Mark.RESOLVED] = "shakespeare"
    # a separate validation text
    val_corpus: Annotated[str | None, Mark.RESOLVED] = None
    # training, validation and test parts: fractions, or numbers of characters
    split: Annotated[tuple[NotNegative, ...], Mark.FIXED] = DEFAULT_SPLIT
    lines: Annotated[bool, Mark.WITHOUT_EFFECT] = False  # each line is a text, such as a name
    encoding: str = "utf-8"  # text encoding
    # more characters for the vocabulary
    characters: Annotated[str | None, Mark.RESOLVED] = None

    def __post_init__(self) -> None:
        check_rules("data", self)
        split = list(self.split)
        if len(split) != 3 or 0 in split[:2]:
            raise ValueError(f"data.split={split} must be three numbers; training and validation must be above 0")
        if max(split) < 1 and not math.isclose(sum(split), 1, abs_tol=1e-6):
            raise ValueError(f"data.split={split}: fractions must add up to 1, such as [0.8, 0.1, 0.1]")
        if max(split) >= 1 and any(size % 1 for size in split):
            raise ValueError(f"data.split={split} must be three fractions below 1 or three whole numbers of characters")
        if self.val_corpus is not None and self.split != DEFAULT_SPLIT:
            raise ValueError("data.split divides one text; leave it out with data.val_corpus, or the other way round")
        try:
            "".encode(self.encoding)
        except (LookupError, UnicodeError):
            raise ValueError(
                f"data.encoding={self.encoding} is not a text encoding; try utf-8, utf-16 or latin-1"
            ) from None
