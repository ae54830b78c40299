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
from training.trained_model import TrainedModel, load_model

MODEL = "a run folder or a checkpoint (default: the newest run's best)"
FORMATS = {
    "safetensors": lambda trained, folder: save_checkpoint(published(trained.checkpoint), folder / EXPORTED),
    "huggingface": write_huggingface,
}


@command(
    option("--checkpoint", type=Path, metavar="PATH", help=MODEL),
    option("--to", choices=FORMATS, required=True, help="format of the files"),
    option("--output", type=Path, required=True, metavar="FOLDER", help="a new folder"),
)
def main(options: Namespace) -> None:
    if options.output.exists() and (not options.output.is_dir() or any(options.output.iterdir())):
        raise UserError(f"--output {options.output}: exists already; name a new folder")
    trained: TrainedModel = load_model(options.checkpoint, "cpu")
    folder, name = trained.run_folder, options.output.resolve().name
    machine = read_newest_record(folder / "metrics.jsonl").get("machine") if folder else None
    card = model_card(published(trained.checkpoint), form=options.to, name=name, machine=machine)
    FORMATS[options.to](trained, options.output)
    replace_text(options.output / "README.md", card)
    print(f"{trained.path} is now also in {options.output}; its README.md says how to load it")


if __name__ == "__main__":
    run_command(main)
