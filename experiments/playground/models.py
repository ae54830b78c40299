"""What a page needs: its models with their weights, losses and texts, and what it trains other models with."""

import base64
import contextlib
import dataclasses
import math
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from cli.errors import UserError
from cli.hints import PROJECT
from data.sources import BUNDLED
from data.vocabulary import LOOK_ALIKES
from experiments.formatting import signed
from experiments.heads.analysis import Analysis
from experiments.heads.measures import explain_no_target, role_of
from experiments.heads.silence import COPIES, NGRAMS, all_heads, memories
from experiments.pages import render
from experiments.playground.weights import payload, zipped
from model.config import LayerShape, ModelConfig
from training.config_file import load_config
from training.identity import measurement_of, what_differs
from training.runs.checkpoint import load_checkpoint
from training.runs.metrics import read_records
from training.runs.run_folder import RunFolder
from training.trained_model import TrainedModel

KERNELS = "kernels_fma.wasm", "kernels.wasm"  # the faster one first, which some browsers do not know
OPENING = 160  # characters of the validation split that the page begins with
# Settings that may differ from those of configs/page.yaml in a model that a page trains further.
CHOSEN = ("n_layer", "n_head", "n_kv_head", "n_embd", "head_size", "block_size", "logit_softcap")
UNUSED = ("dropout", "attention", "ngram_rows", "ngram_dropout")


def make_page(
    opened: Sequence[TrainedModel],
    *,
    title: str = "Playground",
    text: str | None = None,
    all_steps: bool = False,
    analyses: Sequence[Analysis] = (),
) -> str:
    """Return a page that is these models.

    text: that it begins with; None: the start of the first validation split. all_steps: with the weights of each step
    that the runs kept. analyses: of the heads of each model, if they were measured.

    Raises UserError if `all_steps` adds none.
    """
    if text is None:
        text = ""
        with contextlib.suppress(UserError, OSError):  # the text may not be on this machine
            text = opened[0].opening(min(OPENING, opened[0].model.config.block_size))
    described = [describe(each, all_steps, own) for each, own in zip_longest(opened, analyses)]
    if all_steps and all(len(each["checkpoints"]) == 1 for each in described):
        raise UserError("--all-steps: no other steps were kept; train the run with train.keep_checkpoints=24")
    described[0]["opening"] = text
    values = {"models_of_this_page": described, "warning": warning(opened), "title": title}
    return render("playground/playground.html", **values, **for_training())


def for_training() -> dict[str, Any]:
    """Return what a page needs to train a model: the settings, the code of the matrix product, words, and a text."""
    config = load_config(PROJECT / "configs/page.yaml")
    training = {
        "settings": dataclasses.asdict(config),
        "kernels": [base64.b64encode((Path(__file__).parent / name).read_bytes()).decode() for name in KERNELS],
        "look_alikes": LOOK_ALIKES,
        "no_target": explain_no_target(config.model),
    }
    return {"training": training, "corpus": zipped((BUNDLED / "selmere.txt").read_bytes())}


def can_train(config: ModelConfig) -> bool:
    """Return whether train.js can train a model with these settings further."""
    page = load_config(PROJECT / "configs/page.yaml").model
    others_agree = dataclasses.replace(page, **{name: getattr(config, name) for name in CHOSEN + UNUSED}) == config
    if not (others_agree and config.n_layer and isinstance(config.n_head, int)):
        return False
    H, D = config.n_head, config.layers[0].head_size
    is_plain = config.layers[0] == LayerShape(H, H, D) and config.n_embd == H * D
    return is_plain and D % 4 == 0 and config.block_size % 4 == 0 and config.logit_softcap > 0


def describe(trained: TrainedModel, all_steps: bool, analysis: Analysis | None) -> dict[str, Any]:
    """Return one column of a page: a model, the checkpoints that its slider has, and the losses of its run."""
    run, config = RunFolder(trained.run_folder) if trained.run_folder else None, trained.model.config
    records = read_records(run.metrics) if run and run.metrics.is_file() else []
    kept = [load_checkpoint(path) for path in run.all_kept().values()] if run and all_steps else []
    checkpoints = sorted([*kept, trained.checkpoint], key=lambda checkpoint: checkpoint.step)
    text, n = Path(trained.checkpoint.corpus["name"]).name, trained.model.n_parameters()
    packed = [(checkpoint.step, *payload(checkpoint)) for checkpoint in checkpoints]
    heads = all_heads(trained.model)
    return {
        "name": trained.name,
        "checkpoints": [{"step": step, "header": own, "weights": weights} for step, own, weights in packed],
        "chosen": checkpoints.index(trained.checkpoint),
        "can_train": can_train(config),
        "parts": [*map(str, heads), *memories(trained.model)],
        "characters": trained.vocabulary.characters,
        "header": {"measured": analysis and measured(analysis)},  # of every checkpoint
        "context": config.block_size,
        "about": f"A GPT of {n:,} parameters that learned to predict the next character of the text {text}",
        "no_target": explain_no_target(config),
        "train_loss": [(each["step"], each["train_loss"]) for each in records if "train_loss" in each],
        "val_loss": [(each["step"], each["val_loss"]) for each in records if "val_loss" in each],
    }


def warning(opened: Sequence[TrainedModel]) -> str:
    """Return what a page says if its models' losses do not compare, or nothing."""
    differing = ", ".join(what_differs([measurement_of(each.checkpoint.identity) for each in opened]))
    sentence = "Do not compare the losses or surprise of models A and B: they were measured with another"
    return differing and f"{sentence} {differing}."


def measured(analysis: Analysis) -> dict[str, Any]:
    """Return what was measured of a model's heads, as a page shows it.

    roles: of each head. over: which characters they come from. changes: for each part, how the loss changes without it,
    as a number and in words. summary: explains the changes.
    """
    changes = {}
    for part, (increase, error) in analysis.increases.items():
        spread = "" if math.isnan(error) else f" ± {error:.4f}"
        verb = "rises" if increase >= 0 else "falls"
        changes[str(part)] = signed(increase), f"the loss {verb} by {abs(increase):.4f}{spread} without it"
    whole, n_heads = analysis.evaluation, len(analysis.measures.figures["on itself"])
    summary = [
        "Loss: how the loss changes without the head (its output set to zero); ± is the standard error.",
        f"The whole model has a {analysis.loss_name} of {whole.loss:.4f} nats per character over "
        f"{whole.measured_on(analysis.text)}.",
        *(f"The memory of {name}: {changes[name][1]}." for name in (NGRAMS, COPIES) if name in changes),
    ]
    return {
        "roles": [role_of(analysis.measures, head) for head in range(n_heads)],
        "over": f"over {analysis.measures.n_characters:,} characters of {analysis.text}",
        "changes": changes,
        "summary": " ".join(summary),
    }
