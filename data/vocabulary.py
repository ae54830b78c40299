"""The mapping between characters and ids."""

from collections.abc import Iterable, Sequence

import numpy as np

from cli.errors import UserError

# Characters that look alike, the plainest of each kind first: spaces, apostrophes, quotation marks and dashes.
LOOK_ALIKES = (" \t\u00a0\u2009\u202f", "'’‘ʼ´`′", '"“”„″', "-–—−‐‑")  # noqa: RUF001


class UnknownCharacterError(UserError):
    """A text contains a character that is not among the known ones."""

    def __init__(self, character: str, position: int, known: str, instead: str | None = None):
        name = f"{character!r} (U+{ord(character):04X})"
        has_other_ends = character == "\r" and "\n" in known
        known = f"{known[:100]!r}{'...' * (len(known) > 100)}"
        hint = "; in bash, $'\\n' is a line break" if character == "\\" else ""
        hint = "; give the text with the line ends '\\n' instead of '\\r\\n'" if has_other_ends else hint
        hint = f"; write {instead!r} instead" if instead else hint
        where = f"(character {position + 1:,} of the text)"
        super().__init__(f"{name} is not in the vocabulary {where}, which has {known}{hint}")


class Vocabulary:
    """The characters of a corpus, sorted by code point; a character's id is its index in this order.

    Raises ValueError if one is no character: it could be sampled, but not written.
    """

    def __init__(self, characters: Iterable[str]):
        self.characters = "".join(sorted(set(characters)))
        if any("\ud800" <= character <= "\udfff" for character in self.characters):
            raise ValueError("a character cannot be half of a surrogate pair; choose another data.encoding")
        self.dtype = np.min_scalar_type(max(len(self) - 1, 0))  # the smallest unsigned type that holds every id
        known = code_points(self.characters)
        # Row c contains the id of code point c. All other rows, including the last, contain len(self): unknown.
        self._table = np.full(known.max(initial=-1) + 2, len(self), dtype=np.min_scalar_type(len(self)))
        self._table[known] = np.arange(len(self))

    def __len__(self) -> int:
        return len(self.characters)

    @property
    def default_prompt(self) -> str:
        """The prompt used when none is given: a line break if the vocabulary has one, else its first character."""
        return "\n" if "\n" in self.characters else self.characters[0]

    @property
    def look_alikes(self) -> dict[str, str]:
        """Unknown characters, such as curly quotes, and the known one that each looks like."""
        kinds = [(kind, [c for c in kind if c in self.characters]) for kind in LOOK_ALIKES]
        return {c: known[0] for kind, known in kinds if known for c in kind if c not in known}

    def encode(self, text: str) -> np.ndarray:
        """Return the ids (len(text),) of the characters. Raises UnknownCharacterError at the first unknown one."""
        ids = self._table.take(code_points(text), mode="clip")
        if ids.size and ids.max() == len(self):
            position = int(np.argmax(ids == len(self)))
            instead = self.look_alikes.get(text[position])
            raise UnknownCharacterError(text[position], position, self.characters, instead)
        return ids.astype(self.dtype, copy=False)

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Return the text of the ids."""
        known = code_points(self.characters).astype("<u4")
        return known[np.asarray(ids, self.dtype)].tobytes().decode("utf-32-le")


def code_points(text: str) -> np.ndarray:
    """Return the Unicode code points (len(text),) of a text, as NumPy's index type."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4").astype(np.intp)
