"""Export a trained model for other programs: python -m experiments.export --to safetensors --output my-model"""

import dataclasses
import math
import re
import shlex
from argparse import Namespace
from pathlib import Path

from cli.command import run_command
from cli.errors import UserError
from cli.options import command, option
from data.files import replace_text
from experiments.export.huggingface import write_huggingface
from page.template import render
from training.config_file import to_yaml
from training.runs.checkpoint import Checkpoint, save_checkpoint
from training.runs.find_checkpoint import EXPORTED
from training.runs.metrics import read_newest_record
from training.trained_model import TrainedModel, load_model

LIBRARIES = {"safetensors": "character-gpt", "huggingface": "transformers"}  # that load each format


@command(
    option("--checkpoint", type=Path, metavar="PATH", help="a run or a checkpoint (default: the best saved last)"),
    option("--to", choices=LIBRARIES, required=True, help="format of the files"),
    option("--half", action="store_true", help="with safetensors: 16 bits for each weight instead of 32"),
    option("--license", metavar="NAME", help="for the model card, as the Hub names it: mit, cc-by-4.0, ... (none)"),
    option("--output", type=Path, required=True, metavar="FOLDER", help="a new folder"),
)
def main(options: Namespace) -> None:
    if options.output.exists() and (not options.output.is_dir() or any(options.output.iterdir())):
        raise UserError(f"--output {options.output}: exists already; name a new folder")
    if options.half and options.to != "safetensors":
        raise UserError("--half is for --to safetensors; leave it out")
    trained, name = load_model(options.checkpoint, "cpu"), options.output.resolve().name
    checkpoint = published(trained.checkpoint, half=options.half)
    card = model_card(trained, checkpoint, form=options.to, name=name, licence=options.license)
    if options.to == "safetensors":
        save_checkpoint(checkpoint, options.output / EXPORTED)
    else:
        write_huggingface(trained, options.output)
    replace_text(options.output / "README.md", card)
    print(f"{trained.path} is now also in {options.output.resolve()}; its README.md says how to load and publish it")


def published(checkpoint: Checkpoint, *, half: bool = False) -> Checkpoint:
    """Return a checkpoint for sampling, without paths of this machine: its settings have the last part of each.

    half: with weights in float16, which are read as float32 again.
    """
    data, train = checkpoint.config.data, checkpoint.config.train
    val_corpus = data.val_corpus and _plain_name(data.val_corpus)
    data = dataclasses.replace(data, corpus=_plain_name(data.corpus), val_corpus=val_corpus)
    train = dataclasses.replace(train, ancestor=train.ancestor and _plain_name(train.ancestor))
    config = dataclasses.replace(checkpoint.config, data=data, train=train)
    text = {**checkpoint.corpus, "name": _plain_name(checkpoint.corpus["name"])}
    weights = {f"model.{name}": x for name, x in checkpoint.weights.items()}
    if half:
        weights = {name: x.half() if x.is_floating_point() else x for name, x in weights.items()}
    return dataclasses.replace(checkpoint, config=config, corpus=text, tensors=weights)


def model_card(trained: TrainedModel, checkpoint: Checkpoint, *, form: str, name: str, licence: str | None) -> str:
    """Return the page of a model in a folder of this name.

    checkpoint: what is published of it. licence: its name on the Hub, if one was chosen.
    """
    folder = trained.run_folder
    machine = read_newest_record(folder / "metrics.jsonl").get("machine") if folder else None
    front = {"library_name": LIBRARIES[form], "pipeline_tag": "text-generation", "tags": ["gpt", "character-level"]}
    loss, best_step = checkpoint.progress.best_loss, checkpoint.progress.best_step
    return render(
        Path(__file__).parent / "cards" / f"{form}.md",
        front=to_yaml(front | ({"license": licence} if licence else {})),
        name=name,
        path=f"./{name}",
        quoted=shlex.quote(f"./{name}"),
        checkpoint=checkpoint,
        n_parameters=trained.model.n_parameters(),
        loss=f"{loss:.4f} nats" if best_step == checkpoint.step and math.isfinite(loss) else "not measured",
        machine=machine,
        settings=to_yaml(checkpoint.config).rstrip(),
    )


def _plain_name(name: str) -> str:
    return re.sub(r"[^\w .-]+", "-", Path(name).name).strip(".") or "text"


if __name__ == "__main__":
    run_command(main)
