"""What a page needs of its models: their weights, losses and texts."""

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from cli.errors import UserError
from experiments.formatting import visible
from experiments.heads.measures import HeadMeasures, role_of
from experiments.heads.model_access import all_heads
from experiments.heads.silence import NGRAMS
from experiments.pages import render
from experiments.playground.weights import payload
from training.runs.find_checkpoint import open_checkpoint
from training.runs.metrics import read_records
from training.runs.run_folder import RunFolder
from training.trained_model import TrainedModel

OPENING = 160  # characters of the validation split that the page begins with


def make_page(
    opened: Sequence[TrainedModel],
    *,
    text: str | None = None,
    all_steps: bool = False,
    measures: Sequence[HeadMeasures] = (),
    template: str = "playground/playground.html",
    **values: Any,
) -> str:
    """Return a page that is these models.

    text: that it begins with; None: the start of the first validation split. all_steps: with the weights of each step
    that the runs kept. measures: of the heads of each model, for their roles. values: of the template.
    """
    described = [describe(each, all_steps, own) for each, own in zip_longest(opened, measures)]
    described[0]["opening"] = opening_of(opened[0]) if text is None else text
    return render(template, models_of_this_page=described, **{"title": "Playground"} | values)


def describe(trained: TrainedModel, all_steps: bool, measures: HeadMeasures | None) -> dict[str, Any]:
    """Return one column of a page: a model, the checkpoints that its slider has, and the losses of its run."""
    run, config = RunFolder(trained.run_folder) if trained.run_folder else None, trained.model.config
    records = read_records(run.metrics) if run and run.metrics.is_file() else []
    kept = [open_checkpoint(path)[1] for path in run.all_kept().values()] if run and all_steps else []
    checkpoints = sorted([*kept, trained.checkpoint], key=lambda checkpoint: checkpoint.step)
    text, n_head = Path(trained.checkpoint.corpus["name"]).name, str(config.n_head).strip("(),")
    packed = [(checkpoint.step, *payload(checkpoint)) for checkpoint in checkpoints]
    vocabulary, heads = trained.vocabulary, all_heads(trained.model)
    known = vocabulary.characters
    return {
        "name": trained.name,
        "checkpoints": [{"step": step, "header": own, "weights": weights} for step, own, weights in packed],
        "chosen": checkpoints.index(trained.checkpoint),
        "parts": [*map(str, heads), *([NGRAMS] if trained.model.ngrams else [])],
        "header": {  # of every checkpoint
            "characters": known,
            "unit": vocabulary.unit,
            "labels": [visible(character, vocabulary.unit) for character in known],
            "known": f"{known[:100]!r}{'...' * (len(known) > 100)}",
            "start": vocabulary.default_prompt,
            "roles": [role_of(measures, head) for head in range(len(heads))] if measures else None,
            "measured": measures and f"over {measures.n_characters:,} characters of the validation split",
        },
        "measured_on": [text, config.block_size],
        "about": f"{config.n_layer} layers of {n_head} heads, width {config.n_embd}, trained on {text}",
        "train_loss": [(each["step"], each["train_loss"]) for each in records if "train_loss" in each],
        "val_loss": [(each["step"], each["val_loss"]) for each in records if "val_loss" in each],
    }


def opening_of(trained: TrainedModel) -> str:
    """Return the text that a page begins with, without a part of a character."""
    try:
        text = trained.opening(min(OPENING, trained.model.config.block_size))
    except (UserError, OSError):  # the text is not on this machine
        return ""
    return text.encode("utf-8", "ignore").decode()
