"""Make a run of a character-level nanoGPT checkpoint: python -m experiments.import_nanogpt --checkpoint ckpt.pt"""

import dataclasses
import io
import pickle
import re
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cli.command import run_command
from cli.errors import UserError, checking_values
from data.config import DataConfig
from data.corpus import open_corpus
from experiments.command import command, option
from model.config import ModelConfig
from training.runs.checkpoint import Checkpoint, reading
from training.runs.portable import check_size
from training.runs.run_folder import RunFolder
from training.settings.config import Config, OptimConfig, TrainConfig
from training.settings.config_file import to_dict, to_yaml
from training.state import Progress

NAMES = {  # of nanoGPT's modules (github.com/karpathy/nanoGPT, model.py), and ours
    r"transformer\.wte": "token_embedding",
    r"transformer\.wpe": "position_embedding",
    r"transformer\.ln_f": "norm",
    r"transformer\.h\.(\d+)\.ln_1": r"blocks.\1.attention_norm",
    r"transformer\.h\.(\d+)\.attn\.c_attn": r"blocks.\1.attention.qkv",
    r"transformer\.h\.(\d+)\.attn\.c_proj": r"blocks.\1.attention.proj",
    r"transformer\.h\.(\d+)\.ln_2": r"blocks.\1.mlp_norm",
    r"transformer\.h\.(\d+)\.mlp\.c_fc": r"blocks.\1.mlp.up",
    r"transformer\.h\.(\d+)\.mlp\.c_proj": r"blocks.\1.mlp.proj",
    "lm_head": "lm_head",
}
SHAPE = ("n_layer", "n_head", "n_embd", "block_size")
MASK = re.compile(r"transformer\.h\.\d+\.attn\.bias")  # a buffer of older versions


@command(
    option("--checkpoint", type=Path, required=True, metavar="FILE", help="nanoGPT's ckpt.pt"),
    option("--vocabulary", type=Path, required=True, metavar="FILE", help="nanoGPT's meta.pkl, beside its train.bin"),
    option("--output", type=Path, required=True, metavar="FOLDER", help="the new run, such as runs/NAME"),
    option("--corpus", metavar="TEXT", help="the text of its training, as in data.corpus; needed to train it further"),
)
def main(options: Namespace) -> None:
    characters = read_vocabulary(options.vocabulary)
    checkpoint = convert(options.checkpoint, characters, options.corpus)
    run = RunFolder.create(options.output.name, to_yaml(checkpoint.config()), root=options.output.parent)
    run.save(checkpoint, is_best=True)
    print(f"{run.path} is a run with this model. To sample from it or train it further:")
    print(f"  python sample.py --checkpoint {run.path}")
    print(f"  python train.py --config {run.config} --from {run.path} data.corpus=my.txt train.max_steps=500")


class _PlainUnpickler(pickle.Unpickler):
    """Reads values of Python's own types; a pickle that names any function or class is refused."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it would execute {module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it refers to other data")


def read_vocabulary(path: Path) -> list[str]:
    """Return the characters in the order of nanoGPT's ids. Raises UserError if the file is not its meta.pkl."""
    with reading(path):
        names = _PlainUnpickler(io.BytesIO(path.read_bytes())).load()["itos"]
        characters = [names[i] for i in range(len(names))]
        if len(set(characters)) < len(characters) or any(not isinstance(c, str) or len(c) != 1 for c in characters):
            raise ValueError("its itos does not map ids to different characters")
    return characters


def convert(path: Path, characters: list[str], corpus: str | None) -> Checkpoint:
    """Return a nanoGPT checkpoint as one of this project, with its ids in the order of our vocabularies.

    Raises UserError if it is not one, if it has fewer ids than characters, or if the text has other characters.
    """
    order = torch.tensor([characters.index(c) for c in sorted(characters)])
    with reading(path):
        saved = torch.load(path, map_location="cpu", weights_only=True)
        model = _model_config(saved["model_args"])
        weights = _renamed(saved["model"])
        for name in ("token_embedding.weight", "lm_head.weight"):  # nanoGPT ties them: one tensor, two names
            if len(weights[name]) < len(characters):
                raise ValueError(f"it has {len(weights[name])} ids, but the vocabulary {len(characters)}")
            weights[name] = weights[name][order]  # without the ids that fill up to a multiple of 64
        step = int(saved["iter_num"])
    data = DataConfig(corpus=corpus or "unknown")
    of_corpus: dict[str, Any] = {"name": data.corpus, "digest": "unknown", "n_characters": 0, "n_train": None}
    if corpus:
        opened = open_corpus(data)
        if unknown := set(opened.vocabulary.characters) - set(characters):
            raise UserError(f"{corpus} has characters that the model does not know: {''.join(sorted(unknown))!r:.60}")
        if missing := set(characters) - set(opened.vocabulary.characters):
            data = dataclasses.replace(data, characters="".join(sorted(missing)))
        of_corpus |= {"digest": opened.digest, "n_characters": len(opened.ids)}
    config = Config(
        model=model,
        data=data,
        optim=OptimConfig(name="adamw", lr=1e-3, beta2=0.99, weight_decay=0.1, warmup_steps=100, grad_clip=1.0),
        train=TrainConfig(max_steps=max(1, step)),
    )
    checkpoint = Checkpoint(
        settings=to_dict(config),
        characters="".join(sorted(characters)),
        corpus=of_corpus,
        model=weights,
        optimizers=[{}],
        progress=dataclasses.asdict(Progress(step=step, best_step=step)),
    )
    with reading(path):
        checkpoint.check_types()
        check_size(checkpoint)
    return checkpoint


def _model_config(arguments: Mapping[str, Any]) -> ModelConfig:
    n_layer, n_head, n_embd, block_size = (int(arguments[name]) for name in SHAPE)
    with checking_values():
        return ModelConfig(
            n_layer=n_layer,
            n_head=n_head,
            n_embd=n_embd,
            block_size=block_size,
            dropout=float(arguments["dropout"]),
            bias=bool(arguments["bias"]),
            positions="learned",
            norm="layer",
            mlp="gelu",
            qk_norm=False,
            logit_softcap=0,
        )


def _renamed(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return nanoGPT's weights by our names, in float32; torch.compile's prefix goes."""
    result = {}
    for name, value in weights.items():
        module, _, kind = name.removeprefix("_orig_mod.").rpartition(".")
        if MASK.fullmatch(f"{module}.{kind}"):
            continue
        found = [re.sub(theirs, ours, module) for theirs, ours in NAMES.items() if re.fullmatch(theirs, module)]
        if not found:
            raise ValueError(f"nanoGPT has no weights called {name!r:.60}")
        result[f"{found[0]}.{kind}"] = value.float()
    return result


if __name__ == "__main__":
    run_command(main)
