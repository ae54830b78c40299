"""What a page needs: its models with their weights, losses and texts, and what it trains other models with."""

import base64
import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cli.hints import PROJECT
from data.sources import BUNDLED
from data.vocabulary import LOOK_ALIKES
from page.template import render
from page.weights import payload, zipped
from training.config_file import load_config
from training.identity import measurement_of, what_differs
from training.runs.find_checkpoint import BUNDLED_MODEL
from training.runs.metrics import read_records
from training.runs.run_folder import RunFolder
from training.trained_model import TrainedModel

HERE = Path(__file__).parent
KERNELS = "kernels_fma.wasm", "kernels.wasm"  # the faster one first, which some browsers do not know
OPENING = 120  # characters that a model writes for its page
ADDRESS = ""  # of the project, for the foot of every page: set it when you publish


def make_page(
    opened: Sequence[TrainedModel],
    *,
    text: str | None = None,
    title: str | None = None,
    measured: Sequence[Mapping[str, Any] | None] = (None, None),
) -> str:
    """Return a page that is these models.

    text: that it begins with; None: the first model writes one. title: by default, the names of the models. measured:
    of the heads of each model, see `experiments.heads`.
    """
    described = [describe(*each) for each in zip(opened, measured, strict=False)]
    is_bundled = opened[0].path.resolve() == BUNDLED_MODEL.resolve() and len(opened) == 1 and not title
    described[0] |= {
        "opening": opened[0].generate(length=OPENING) if text is None else text,
        "is_prompt": text is not None,
        "is_bundled": is_bundled,
    }
    config = load_config(PROJECT / "configs/page.yaml")
    training = {
        "settings": dataclasses.asdict(config),
        "kernels": [base64.b64encode((HERE / "compute" / name).read_bytes()).decode() for name in KERNELS],
        "look_alikes": LOOK_ALIKES,
    }
    promise = (
        "It reads a text, guesses each next character, and learns from its mistakes."
        if is_bundled
        else " ".join(dict.fromkeys(each["about"] for each in described))
    )
    return render(
        HERE / "page.html",
        title="Watch a GPT learn" if is_bundled else title or " and ".join(each["name"] for each in described),
        promise=f"{promise} Nothing leaves your computer.",
        warning=warning(opened),
        models_of_this_page=described,
        training=training,
        corpus=zipped((BUNDLED / "selmere.txt").read_bytes()),
        corpus_name="Selmere, a short play",
        project="character-level GPT",
        address=ADDRESS,
    )


def describe(trained: TrainedModel, measured: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what a page knows of a model: its weights, and the losses of its run over the characters it read."""
    run, config = RunFolder(trained.run_folder) if trained.run_folder else None, trained.checkpoint.config
    records = read_records(run.metrics) if run and run.metrics.is_file() else []
    header, weights = payload(trained.checkpoint)
    losses = [(each["step"], each["val_loss"]) for each in records if "val_loss" in each]
    best = trained.checkpoint.progress
    losses = losses or [(best.best_step, best.best_loss)] * math.isfinite(best.best_loss)
    text, n = Path(trained.checkpoint.corpus["name"]).name, trained.model.n_parameters()
    return {
        "name": "bundled model" if trained.path.resolve() == BUNDLED_MODEL.resolve() else trained.name,
        "about": f"It has {n:,} parameters, and learned to predict the next character of {text}.",
        "header": header | {"measured": measured},
        "weights": weights,
        "characters": trained.vocabulary.characters,
        "points": [(step * config.tokens_per_step, loss) for step, loss in losses],
        "stop": "\n" if config.data.lines else None,
    }


def warning(opened: Sequence[TrainedModel]) -> str:
    """Return what a page says if its models' losses do not compare, or nothing."""
    differing = ", ".join(what_differs([measurement_of(each.checkpoint.identity) for each in opened]))
    return (
        differing and f"Do not compare these models' losses or surprise: they were measured with another {differing}."
    )
