"""Make a run of a character-level nanoGPT checkpoint: python -m experiments.import_nanogpt --checkpoint ckpt.pt"""

import contextlib
import io
import pickle
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from cli.command import run_command
from cli.errors import UserError
from cli.hints import to_paste
from cli.options import command, option
from data.config import DataConfig
from data.corpus import open_corpus
from data.vocabulary import Vocabulary
from experiments import gpt2
from training.config_file import build_config, to_yaml
from training.runs.checkpoint import Checkpoint, check_weights, save_checkpoint
from training.runs.run_folder import RunFolder
from training.state import Progress, fingerprint

OPTIM = {"name": "adamw", "lr": 1e-3, "beta2": 0.99, "weight_decay": 0.1, "warmup_steps": 100, "grad_clip": 1.0}


@command(
    option("--checkpoint", type=Path, required=True, metavar="FILE", help="nanoGPT's ckpt.pt"),
    option("--vocabulary", type=Path, required=True, metavar="FILE", help="nanoGPT's meta.pkl, beside its train.bin"),
    option("--output", type=Path, required=True, metavar="FOLDER", help="the new run, such as runs/NAME"),
    option("--corpus", metavar="TEXT", help="the text of its training, as in data.corpus, to measure it on that"),
)
def main(options: Namespace) -> None:
    characters = read_vocabulary(options.vocabulary)
    checkpoint = convert(options.checkpoint, characters, options.corpus)
    run = RunFolder.create(options.output.name, root=options.output.parent)
    run.lay_out(to_yaml(checkpoint.config))
    for path in (run.best, run.latest):
        save_checkpoint(checkpoint, path)
    print(f"{run.path} is a run with this model. To sample from it or train it further:")
    print(f"  {to_paste('sample.py', '--checkpoint', run.path)}")
    tune = ("--config", run.config, "--from", run.path, "data.corpus=my.txt", "train.name=tuned")
    print(f"  {to_paste('train.py', *tune)}")


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it would execute {module}.{name}")


def read_vocabulary(path: Path) -> list[str]:
    """Return the characters in the order of nanoGPT's ids. Nothing that the pickle names is executed."""
    content = io.BytesIO(path.read_bytes())
    with _reading(path, "nanoGPT's meta.pkl"):
        names = _PlainUnpickler(content).load()["itos"]
        if {*map(len, names.values())} != {1}:
            raise ValueError("its itos maps ids to words instead of characters")
        return [names[i] for i in range(len(names))]


def convert(path: Path, characters: list[str], corpus: str | None) -> Checkpoint:
    """Return a nanoGPT checkpoint as one of this project, with its ids in the order of our vocabularies.

    Raises UserError if it is not one, or if it has fewer ids than characters.
    """
    digest = open_corpus(DataConfig(corpus=corpus)).digest if corpus else "unknown"
    text = {"name": corpus or "unknown", "digest": digest, "n_train": None}
    vocabulary = Vocabulary(characters)
    origin: dict[str, Any] = {
        "text": digest[:16],
        "vocabulary": fingerprint(vocabulary.characters),
        "ancestor": None,
        "arithmetic": "nanoGPT",
        "earlier": {},
    }
    content = io.BytesIO(path.read_bytes())
    with _reading(path, "a checkpoint of nanoGPT"):
        saved = torch.load(content, map_location="cpu", weights_only=True)
        given = {"dropout": 0.0} | saved["model_args"]  # which old versions lack
        shape = {name: given[name] for name in ("n_layer", "n_head", "n_embd", "block_size", "bias", "dropout")}
        step, data = int(saved["iter_num"]), {"corpus": text["name"], "characters": vocabulary.characters}
        config = build_config(
            {"model": gpt2.shape() | shape, "data": data, "optim": OPTIM, "train": {"max_steps": step}}
        )
        ours, weights = {its: name for name, its in gpt2.module_names(config.model.n_layer).items()}, {}
        for name, value in saved["model"].items():
            module, _, kind = name.removeprefix("_orig_mod.").rpartition(".")  # torch.compile's prefix
            if not module.endswith(".attn"):  # a mask, in older versions
                weights[f"{ours.get(module, module)}.{kind}"] = value
        order = torch.tensor([characters.index(c) for c in vocabulary.characters])
        for name in ("token_embedding.weight", "lm_head.weight"):  # nanoGPT ties them: one tensor, two names
            if len(weights[name]) < len(characters):
                raise ValueError(f"it has {len(weights[name])} ids, but the vocabulary {len(characters)}")
            weights[name] = weights[name][order]  # without the ids that fill up to a multiple of 64
        tensors = {f"model.{name}": value for name, value in weights.items()}
        checkpoint = Checkpoint(config, vocabulary, text, origin, Progress(step=step, best_step=step), tensors)
        check_weights(checkpoint)
    return checkpoint


@contextlib.contextmanager
def _reading(path: Path, kind: str) -> Iterator[None]:
    """Turn the errors of content that is not of this kind into a UserError that names `path`."""
    try:
        yield
    except (OSError, MemoryError):
        raise
    except Exception as error:  # each kind of wrong file raises another one
        reason = (str(error).splitlines() or ["it ends too early"])[0]
        if reason.startswith("Weights only load failed"):  # PyTorch advises to load it all the same
            reason = "it would execute code"
        raise UserError(f"{path}: is not {kind} ({reason})") from None


if __name__ == "__main__":
    run_command(main)
