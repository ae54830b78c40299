"""Measure what counting n-grams predicts: python -m experiments.counting --config configs/shakespeare.yaml"""

import dataclasses
from argparse import Namespace
from pathlib import Path

import numpy as np

from cli.command import run_command
from cli.errors import UserError
from data.corpus import open_corpus
from experiments.command import command, option, whole
from training.config_file import load_config


@command(
    option("--config", type=Path, required=True, metavar="FILE", help="a config, which names the text"),
    option("--longest", type=int, choices=range(1, 10), default=6, metavar="N", help="longest n-gram (%(default)s)"),
    option("--characters", type=whole(1), metavar="N", help="count only the first ones of the training split"),
    option("settings", nargs="*", metavar="SETTING=VALUE", help="settings of the config, such as data.corpus=my.txt"),
)
def main(options: Namespace) -> None:
    config = load_config(options.config, options.settings)
    corpus = open_corpus(dataclasses.replace(config.data, fallback=None))
    split = corpus.split(config.data.split, config.model.block_size)
    training, validation = (np.asarray(ids[:]).astype(np.int64) for ids in (split.train, split.validation))
    training = training[: options.characters]
    if len(corpus.vocabulary) ** options.longest >= 2**63:
        raise UserError(f"--longest {options.longest} is too long for {len(corpus.vocabulary)} different symbols")
    if len(training) < options.longest:
        raise UserError(f"--characters {options.characters} must be at least --longest {options.longest}")
    for n, loss in enumerate(losses(training, validation, len(corpus.vocabulary), options.longest), start=1):
        print(f"{n}-grams: {loss:.4f} nats per character over {len(validation) - 1:,} of {corpus.name}", flush=True)


def losses(training: np.ndarray, validation: np.ndarray, vocabulary_size: int, longest: int) -> list[float]:
    """Return the loss of interpolated n-grams for n = 1 to `longest`, over all but the first of the validation ids.

    With counts C of n-grams, and T different characters seen after the n - 1 characters h, P_n(c | h) =
    (C(h c) + T(h) P_(n-1)(c | h without its first character)) / (C(h) + T(h)), and P_0 = 1 / V (Witten and Bell, 1991).
    """
    p, result = np.full(len(validation) - 1, 1 / vocabulary_size), []
    for n in range(1, longest + 1):
        known, counts = np.unique(_codes(training, n, vocabulary_size), return_counts=True)
        contexts, first = np.unique(known // vocabulary_size, return_index=True)
        totals, kinds = np.add.reduceat(counts, first), np.diff(first, append=len(known))
        codes = _codes(validation, n, vocabulary_size)[max(0, 2 - n) :]  # of the characters after the n - 1 first
        C, T = (_look_up(contexts, values, codes // vocabulary_size) for values in (totals, kinds))
        seen = slice(len(p) - len(codes), None)
        p[seen] = np.where(C, (_look_up(known, counts, codes) + T * p[seen]) / np.maximum(C + T, 1), p[seen])
        result.append(-np.log(p).mean())
    return result


def _codes(ids: np.ndarray, n: int, vocabulary_size: int) -> np.ndarray:
    """Return one number for each n-gram of ids."""
    return sum((ids[i : len(ids) - n + 1 + i] * vocabulary_size ** (n - 1 - i) for i in range(n)), np.array(0))


def _look_up(keys: np.ndarray, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the value of each wanted key, or 0. The keys are sorted."""
    i = np.searchsorted(keys, wanted).clip(max=len(keys) - 1)
    return np.where(keys[i] == wanted, values[i], 0)


if __name__ == "__main__":
    run_command(main)
