"""Which text to learn, and how much of it is kept for validation."""

import codecs
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Raises ValueError, with a sentence that names the setting, where a value cannot work."""

    corpus: str = "shakespeare"  # a name, a file, a folder of .txt files, or a glob
    fallback: str | None = None  # trained on, after a warning, where the corpus cannot be downloaded
    val_fraction: float = 0.1  # the last part of the text, never trained on
    encoding: str = "utf-8"

    def __post_init__(self):
        if not 0 < self.val_fraction < 1:
            raise ValueError(f"data.val_fraction={self.val_fraction} must be above 0 and below 1")
        try:
            known = codecs.lookup(self.encoding)._is_text_encoding
        except LookupError:
            known = False
        if not known:
            raise ValueError(f"data.encoding={self.encoding} is not an encoding of text; try utf-8, utf-16 or latin-1")
