"""Settings of the corpus: which text to train on and how to split it."""

import codecs
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Section `data` of a config. Raises ValueError, naming the setting, if a value is invalid."""

    corpus: str = "shakespeare"  # a name, a file, a folder of .txt files, or a glob
    fallback: str | None = None  # used, after a warning, if the download of the corpus fails
    val_fraction: float = 0.1  # fraction of the text, from its end, for validation
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        if not 0 < self.val_fraction < 1:
            raise ValueError(f"data.val_fraction={self.val_fraction} must be above 0 and below 1")
        try:
            known = codecs.lookup(self.encoding)._is_text_encoding
        except LookupError:
            known = False
        if not known:
            raise ValueError(f"data.encoding={self.encoding} is not a text encoding; try utf-8, utf-16 or latin-1")
