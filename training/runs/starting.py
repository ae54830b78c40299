"""Start a run: encode its text and create its folder."""

import dataclasses
import sys
from pathlib import Path

from cli.errors import UserError
from data.config import DataConfig
from data.corpus import Corpus, open_corpus
from data.sources import MissingTextError
from training.config import Config
from training.config_file import to_yaml
from training.runs.ancestor import open_ancestor
from training.runs.checkpoint import Checkpoint
from training.runs.run_folder import RunFolder


def create_run(config: Config, name: str) -> Path:
    """Encode the text of a config, and return the new folder of the run. Raises UserError if the text is missing."""
    config, _, name = prepare_text(config, name)
    return RunFolder.create(name, to_yaml(config)).path


def prepare_text(config: Config, name: str) -> tuple[Config, Corpus, str]:
    """Return the config, its corpus and the run's name.

    If the corpus is the fallback, print a warning and use the fallback's name in the config and the run's name. With
    `train.ancestor`, the vocabulary has the ancestor's characters, too. Raises UserError if the text is missing or too
    short, or the ancestor has another shape.
    """
    corpus = open_corpus(config.data)
    if corpus.fallback_reason:
        line = "!" * 100
        warning = (
            f"{line}\nWARNING: {corpus.fallback_reason}.\n"
            f"WARNING: this run trains on the corpus {corpus.name} INSTEAD OF {config.data.corpus}; "
            f"its results are not comparable with those on {config.data.corpus}.\n{line}"
        )
        print(warning, file=sys.stderr)
        name = f"{name}-on-{Path(corpus.name).stem}"
        config = dataclasses.replace(config, data=dataclasses.replace(config.data, corpus=corpus.name, fallback=None))
    corpus.split(config.data.split, config.model.block_size)
    if config.train.ancestor:
        characters = (config.data.characters or "") + open_ancestor(config).characters
        is_larger = not set(characters) <= set(corpus.vocabulary.characters)
        data = dataclasses.replace(config.data, characters="".join(sorted(set(characters))) if is_larger else None)
        config, corpus = dataclasses.replace(config, data=data), open_corpus(data)
    return config, corpus, name


def open_text_of_run(data: DataConfig, advice: str) -> Corpus:
    """Open the text of a run, which has no fallback. Raises UserError with the advice if the text was moved."""
    try:
        return open_corpus(dataclasses.replace(data, fallback=None))
    except MissingTextError as error:
        raise UserError(f"{error}; if you moved the text, {advice}") from None


def reopen_corpus(checkpoint: Checkpoint, path: Path) -> Corpus:
    """Return the text of the checkpoint at `path`. Raises UserError if it is missing or has changed."""
    corpus = open_text_of_run(checkpoint.config().data, "put it back")
    if corpus.digest != checkpoint.corpus["digest"]:
        raise UserError(f"the text {corpus.name} is not the one that {path} was trained on; restore the original text")
    return corpus
