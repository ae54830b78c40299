"""Is a sampled text copied? The longest stretch of it that stands in the training text, and what is usual."""

from collections.abc import Iterator, Sequence
from statistics import median

import numpy as np

from data.copies import longest_copies
from training.trained_model import TrainedModel

N_PIECES = 15  # of the validation text, which the model has not seen, to compare with


def how_much_is_copied(trained: TrainedModel, texts: Sequence[str], prompt: str = "") -> Iterator[str]:
    """Yield a sentence on each text that continues the prompt: its longest stretch that stands in the training text.

    Beside it is the median of that of equally long pieces of the validation text. If lines are texts (`data.lines`),
    yield one sentence only: how many of the prompts with their texts are no lines of the training text. Raises
    UserError if the text of the model is missing.
    """
    training, validation = trained.split("train"), trained.split("validation")
    if trained.checkpoint.config.data.lines:
        known = set(trained.vocabulary.decode(training).split("\n")[:-1])
        n_new = sum(prompt + text not in known for text in texts)
        yield f"New: {n_new} of {len(texts)}, which are no lines of the training text"
        return
    for number, text in enumerate(texts, start=1):
        length = min(len(text), len(validation))
        starts = np.linspace(0, len(validation) - length, N_PIECES).astype(int)
        pieces = [trained.vocabulary.encode(text), *(validation[start : start + length] for start in starts)]
        place, *others = longest_copies(pieces, training)
        usual = median(other.stop - other.start for other in others)
        which = f"Sample {number}: the" if len(texts) > 1 else "The"
        yield (
            f"{which} longest stretch that stands in the training text has {place.stop - place.start} characters: "
            f"{text[place]!r}; of {N_PIECES} equally long pieces of the validation text, the median is {usual}"
        )
