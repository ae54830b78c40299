"""The README.md of an exported model: what it is, how good it is and how to load it."""

import math
from pathlib import Path
from string import Template

from training.config_file import dump_yaml, to_yaml
from training.runs.checkpoint import Checkpoint
from training.runs.metrics import read_newest_record
from training.trained_model import TrainedModel

CARDS = Path(__file__).parent / "cards"


def model_card(trained: TrainedModel, checkpoint: Checkpoint, *, form: str, name: str, licence: str | None) -> str:
    """Return the page of a model in a folder of this name: Markdown after the front matter that the Hub reads.

    checkpoint: what is published of it. licence: its name on the Hub, if one was chosen.
    """
    folder = trained.run_folder
    machine = read_newest_record(folder / "metrics.jsonl").get("machine") if folder else None
    corpus, progress, vocabulary = checkpoint.corpus, checkpoint.progress, checkpoint.vocabulary
    block_size, loss = checkpoint.config.model.block_size, progress.best_loss
    is_of_best = progress.best_step == checkpoint.step and math.isfinite(loss)
    rows = {
        "vocabulary": f"{len(vocabulary):,} {vocabulary.unit}s",
        "parameters": f"{trained.model.n_parameters():,}",
        "context length": f"{block_size} {vocabulary.unit}s",
        "text": f"{corpus['name']}, SHA-256 {corpus['digest']}",
        "steps": f"{checkpoint.step:,}",
        "validation loss": f"{f'{loss:.4f} nats' if is_of_best else 'not measured'}, context length {block_size}",
        "trained on": machine or "not recorded",
    }
    return Template((CARDS / f"{form}.md").read_text(encoding="utf-8")).substitute(
        licence=dump_yaml({"license": licence}) if licence else "",
        name=name,
        table="\n".join(f"| {key} | {value} |" for key, value in rows.items()),
        settings=to_yaml(checkpoint.config).rstrip(),
        block_size=block_size,
        prompt=vocabulary.characters[-1],
        length=min(100, block_size - 1),
    )
