"""Samples from the variants of a report."""

from collections.abc import Sequence

from cli.errors import UserError
from data.vocabulary import UnknownCharacterError
from experiments.report.runs import Variant
from training.runs.checkpoint import CheckpointError, load_checkpoint
from training.runs.run_folder import find_checkpoint
from training.sampling import sample_text

SAMPLE_LENGTH = 300


def sample_variants(variants: Sequence[Variant], prompt: str | None) -> tuple[dict[str, str], str]:
    """Return a text from the first seed of each variant, by label, and the prompt.

    Raises UserError if a vocabulary lacks a character of the prompt.
    """
    texts, used = {}, prompt or ""
    for variant in variants:
        run = next(iter(variant.runs.values()))
        try:
            checkpoint = load_checkpoint(find_checkpoint(run.folder.path))
        except (CheckpointError, NotADirectoryError):
            continue  # deleted to save space, or of a packed sweep: the figures remain
        vocabulary = checkpoint.vocabulary
        used = prompt or vocabulary.default_prompt
        try:
            text = sample_text(checkpoint.build_model(), vocabulary, used, SAMPLE_LENGTH, seed=0)
        except UnknownCharacterError as error:
            raise UserError(f"--prompt: {error} of {run.folder.path}; leave it out") from None
        texts[variant.label] = (prompt or "") + text
    return texts, used
