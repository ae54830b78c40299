"""Export a trained model for other programs: python -m experiments.export --to safetensors --output my-model"""

from argparse import Namespace
from pathlib import Path

from cli.command import run_command
from cli.errors import UserError
from data.files import replace_text
from experiments.command import command, option
from experiments.export.huggingface import write_huggingface
from experiments.export.model_card import model_card
from experiments.export.published import published
from training.runs.checkpoint import save_checkpoint
from training.runs.metrics import read_newest_record
from training.runs.run_folder import EXPORTED
from training.trained_model import load_model


@command(
    option("--checkpoint", type=Path, metavar="PATH", help="a run or a checkpoint (default: the newest run's best)"),
    option("--to", choices=("safetensors", "huggingface"), required=True, help="format of the files"),
    option("--half", action="store_true", help="with safetensors: 16 bits for each weight instead of 32"),
    option("--license", metavar="NAME", help="for the model card, as the Hub names it: mit, cc-by-4.0, ... (none)"),
    option("--output", type=Path, required=True, metavar="FOLDER", help="a new folder"),
)
def main(options: Namespace) -> None:
    if options.output.exists() and (not options.output.is_dir() or any(options.output.iterdir())):
        raise UserError(f"--output {options.output}: exists already; name a new folder")
    if options.half and options.to != "safetensors":
        raise UserError("--half is for --to safetensors; leave it out")
    trained = load_model(options.checkpoint, "cpu")
    checkpoint = published(trained.checkpoint, half=options.half)
    folder, name = trained.run_folder, options.output.resolve().name
    machine = read_newest_record(folder / "metrics.jsonl").get("machine") if folder else None
    card = model_card(checkpoint, form=options.to, name=name, machine=machine, licence=options.license)
    if options.to == "safetensors":
        save_checkpoint(checkpoint, options.output / EXPORTED)
    else:
        write_huggingface(trained, options.output)
    replace_text(options.output / "README.md", card)
    print(f"{trained.path} is now also in {options.output.resolve()}; its README.md says how to load and publish it")


if __name__ == "__main__":
    run_command(main)
