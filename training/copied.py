"""Is a sampled text copied? The longest stretch of it that stands in the training text, or how many lines are new."""

from collections.abc import Iterator, Sequence

from training.trained_model import TrainedModel


def how_much_is_copied(
    trained: TrainedModel, training: str, texts: Sequence[str], prompt: str, length: int
) -> Iterator[str]:
    """Yield a sentence on each text that continues the prompt: its longest stretch that stands in the training text.

    If lines are texts (`data.lines`), yield one sentence only: how many of them, with the last line of the prompt, are
    no lines of the training text. Those of `length` characters did not reach the end of their line, and are counted
    apart. training: the training text.
    """
    data = trained.checkpoint.config.data
    if data.lines:
        is_whole = trained.text or data.val_corpus  # otherwise, the split may cut the last line
        known = set(training.replace("\r\n", "\n").split("\n")[: None if is_whole else -1])
        begun = prompt.rpartition("\n")[2]
        n_new = sum(begun + text not in known for text in texts if len(text) < length)
        n_cut = sum(len(text) == length for text in texts)
        cut = f"; {n_cut} {'was' if n_cut == 1 else 'were'} cut by --length" if n_cut else ""
        yield f"{n_new} of {len(texts)} texts are new: they are no lines of the training text{cut}"
        return
    for number, text in enumerate(texts, start=1):
        stretch = longest_stretch(text, training)
        which = f"Sample {number}: the" if len(texts) > 1 else "The"
        yield f"{which} longest stretch that stands in the training text has {len(stretch)} characters: {stretch!r}"


def longest_stretch(text: str, training: str) -> str:
    """Return the longest stretch of a text that stands in the training text; the first of several."""
    longest = ""
    for start in range(len(text)):
        end = start + len(longest) + 1  # only a longer one counts
        while end <= len(text) and text[start:end] in training:
            longest = text[start:end]
            end += 1
    return longest
