"""Measure what counting n-grams predicts: python -m experiments.counting --config configs/shakespeare.yaml"""

import dataclasses
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cli.command import run_command
from cli.errors import UserError
from data.corpus import open_corpus
from data.files import replace_text
from experiments.command import command, option, replaceable
from experiments.drawing import draw_svg, line_style, stand_alone
from experiments.report.charts import draw_loss_against
from experiments.report.comparison import compare
from experiments.report.runs import find_runs
from training.config_file import load_config
from training.identity import identity_of, origin_of


@command(
    option("--config", type=Path, required=True, metavar="FILE", help="a config, which names the text"),
    option("--longest", type=int, choices=range(1, 10), default=6, metavar="N", help="longest n-gram (%(default)s)"),
    option("--beside", type=Path, metavar="SWEEP", help="count as many characters as its runs read"),
    option("--output", type=replaceable, metavar="FILE.svg", help="draw the losses of --beside and of counting"),
    option("settings", nargs="*", metavar="SETTING=VALUE", help="settings of the config, such as data.corpus=my.txt"),
)
def main(options: Namespace) -> None:
    if bool(options.output) != bool(options.beside):
        raise UserError("--output and --beside need each other")
    config = load_config(options.config, options.settings)
    corpus = open_corpus(dataclasses.replace(config.data, fallback=None))
    split = corpus.split(config.data.split, config.model.block_size)
    training, validation = (ids[:].astype(np.int64) for ids in (split.train, split.validation))
    if len(corpus.vocabulary) ** options.longest >= 2**63:
        raise UserError(f"--longest {options.longest} is too long for {len(corpus.vocabulary)} different symbols")
    variants = find_runs([options.beside]).variants if options.beside else []
    ours = identity_of(config, origin_of(corpus, "")) | {"train.eval_characters": None}
    per_step = {each.first.config.tokens_per_step for each in variants}
    if len(per_step) > 1 or any(is_on_another_text(each.first.identity, ours) for each in variants):
        same = f"all of {corpus.name} with data.split={list(config.data.split)}, and as much of it in a step"
        raise UserError(f"{options.beside}: needs runs that read and evaluate {same}")
    lowest = {}
    for steps in sorted({each.first.config.train.max_steps for each in variants}) or [0]:
        read = spread(training, steps * max(per_step), config.model.block_size) if steps else training
        if min(len(read), len(validation)) < options.longest:
            raise UserError(f"{corpus.name} is too short to count {options.longest}-grams; lower --longest")
        found = losses(read, validation, len(corpus.vocabulary), options.longest)
        words = ", ".join(f"{n}-grams {loss:.4f}" for n, loss in enumerate(found, start=1))
        print(f"{len(read):,} characters counted, nats per character of {corpus.name}: {words}", flush=True)
        lowest[steps] = min(found)

    def draw(axes: Any) -> None:
        axes.plot(list(lowest), list(lowest.values()), label="counting", **line_style(3))
        draw_loss_against(axes, compare(variants), "train.max_steps")
        axes.set_xlabel(f"length of the training, in steps of {max(per_step):,} characters")

    if options.output:
        replace_text(options.output, stand_alone(draw_svg("counting", draw)))


def is_on_another_text(identity: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
    """Return whether a run was trained or evaluated on something else than the text of `ours`, another identity."""
    keys = ("data.split", "data.level", "data.encoding", "train.eval_characters")
    # Earlier versions recorded the first digits of the text only.
    return not ours["text"].startswith(identity["text"]) or any(identity[key] != ours[key] for key in keys)


def spread(ids: np.ndarray, n: int, length: int) -> np.ndarray:
    """Return about n ids of a text, in stretches of this length from all parts of it; all ids of a shorter text."""
    stretches = ids[: len(ids) // length * length].reshape(-1, length)
    chosen = np.linspace(0, len(stretches) - 1, n // length).round().astype(int)
    return stretches[chosen].ravel() if n < len(ids) else ids


def losses(training: np.ndarray, validation: np.ndarray, vocabulary_size: int, longest: int) -> list[float]:
    """Return the loss of interpolated n-grams for n = 1 to `longest`, over all but the first of the validation ids.

    With counts C of n-grams, and T different characters seen after the n - 1 characters h, P_n(c | h) =
    (C(h c) + T(h) P_(n-1)(c | h without its first character)) / (C(h) + T(h)), and P_0 = 1 / V (Witten and Bell, 1991).
    """
    p, result = np.full(len(validation) - 1, 1 / vocabulary_size), []
    read, asked = (np.zeros(len(ids) + 1, dtype=np.int64) for ids in (training, validation))  # a number for each n-gram
    for n in range(1, longest + 1):
        read, asked = (
            codes[:-1] * vocabulary_size + ids[n - 1 :] for codes, ids in ((read, training), (asked, validation))
        )
        known, counts = np.unique(read, return_counts=True)
        contexts, first = np.unique(known // vocabulary_size, return_index=True)
        totals, kinds = np.add.reduceat(counts, first), np.diff(first, append=len(known))
        codes = asked[max(0, 2 - n) :]  # of the characters after the n - 1 first
        C, T = (_look_up(contexts, values, codes // vocabulary_size) for values in (totals, kinds))
        seen = slice(len(p) - len(codes), None)
        p[seen] = np.where(C, (_look_up(known, counts, codes) + T * p[seen]) / np.maximum(C + T, 1), p[seen])
        result.append(-np.log(p).mean())
    return result


def _look_up(keys: np.ndarray, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the value of each wanted key, or 0. The keys are sorted."""
    i = np.searchsorted(keys, wanted).clip(max=len(keys) - 1)
    return np.where(keys[i] == wanted, values[i], 0)


if __name__ == "__main__":
    run_command(main)
