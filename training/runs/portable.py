"""A model as a folder for other people and tools: safetensors and JSON, without pickle."""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from cli.optional import optional_library
from data.files import replacing
from model.gpt import GPT
from training.config_file import upgraded
from training.runs.checkpoint import Checkpoint, CheckpointError, reading

WEIGHTS, SETTINGS, VOCABULARY = "model.safetensors", "config.json", "vocabulary.json"
LIBRARY = "safetensors.torch"
PATHS = ("corpus", "val_corpus", "fallback", "ancestor")  # settings that may be paths
MOST_BUFFERED = 1 << 27  # numbers in tables of positions, which are not in the file


def write_portable(checkpoint: Checkpoint, folder: Path) -> None:
    """Write the weights, the settings and the vocabulary to a folder. No file contains a path of this machine.

    Raises UserError without the library safetensors.
    """
    weights = optional_library(LIBRARY, WEIGHTS).save(
        {name: value.contiguous() for name, value in checkpoint.model.items()}
    )
    vocabulary = json.dumps(list(checkpoint.characters)).encode()
    progress = {name: checkpoint.progress.get(name, 0) for name in ("step", "best_step", "best_loss")}
    content = {
        "settings": {section: without_paths(values) for section, values in checkpoint.settings.items()},
        "corpus": {**checkpoint.corpus, "name": plain_name(checkpoint.corpus["name"])},
        "progress": {name: value for name, value in progress.items() if math.isfinite(value)},
    }
    digest = _digest(content, vocabulary, weights)
    for name, file_content in (
        (WEIGHTS, weights),
        (VOCABULARY, vocabulary),
        (SETTINGS, json.dumps(content | {"sha256": digest}, indent=1).encode()),
    ):
        with replacing(folder / name) as file:
            file.write(file_content)


def read_portable(path: Path) -> Checkpoint:
    """Return the model with the weights at `path` as a checkpoint. Open the folder's three files only.

    Raises CheckpointError if a file is missing, damaged or not of this project, and UserError without the library
    safetensors.
    """
    library = optional_library(LIBRARY, WEIGHTS)
    try:
        weights, settings, vocabulary = (path.with_name(name).read_bytes() for name in (WEIGHTS, SETTINGS, VOCABULARY))
    except FileNotFoundError as error:
        raise CheckpointError(f"{error.filename}: is missing from the model's folder") from None
    with reading(path.parent):
        content = json.loads(settings)
        if content.pop("sha256") != _digest(content, vocabulary, weights):
            raise CheckpointError(f"{path.parent}: is damaged (its checksum does not match); use another copy")
        checkpoint = Checkpoint(
            settings=upgraded(content["settings"]),
            characters=_joined(json.loads(vocabulary)),
            corpus=content["corpus"],
            model=_tensors(library, weights),
            optimizers=[],
            progress=content["progress"],
        )
        checkpoint.check_types()
        json.dumps(content, ensure_ascii=False).encode()  # half of a surrogate pair could not be written
        for section in checkpoint.settings.values():
            if section != without_paths(section):
                raise ValueError("its settings contain a path")
        check_size(checkpoint)
    return checkpoint


def _joined(characters: Any) -> str:
    if not isinstance(characters, list) or any(not isinstance(c, str) or len(c) != 1 for c in characters):
        raise ValueError(f"{VOCABULARY} is no list of characters")
    return "".join(characters)


def _tensors(library: Any, weights: bytes) -> dict[str, torch.Tensor]:
    try:
        return library.load(weights)
    except optional_library("safetensors", WEIGHTS).SafetensorError as error:
        raise ValueError(str(error)) from None


def plain_name(name: str) -> str:
    """Return the last part of a path as a plain name, which opens nothing outside the current folder."""
    return re.sub(r"[^\w .-]+", "-", Path(name).name).strip(".") or "text"


def without_paths(section: Mapping[str, Any]) -> dict[str, Any]:
    return {name: plain_name(value) if name in PATHS and value else value for name, value in section.items()}


def check_size(checkpoint: Checkpoint) -> None:
    """Raise ValueError if the weights do not fit the settings, before a wrong setting takes all memory."""
    with torch.device("meta"):
        model = GPT(checkpoint.config().model, len(checkpoint.characters))
    expected = {name: value.shape for name, value in model.state_dict().items()}
    if expected != {name: value.shape for name, value in checkpoint.model.items()}:
        raise ValueError("its weights do not fit its settings")
    if not all(value.is_floating_point() and value.isfinite().all() for value in checkpoint.model.values()):
        raise ValueError("its weights are not finite numbers")
    if sum(buffer.numel() for buffer in model.buffers()) > MOST_BUFFERED:
        raise ValueError("its context is too long")


def _digest(content: Mapping[str, Any], vocabulary: bytes, weights: bytes) -> str:
    parts = (json.dumps(content, sort_keys=True).encode(), vocabulary, weights)
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()
