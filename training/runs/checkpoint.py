"""Checkpoints: safetensors files whose header describes the run. Loading one verifies it and never executes code."""

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from cli.errors import UserError
from data.files import read_file, replacing
from data.vocabulary import Vocabulary, make_vocabulary
from model.gpt import GPT
from training.config import Config
from training.config_file import build_config
from training.identity import identity_of
from training.state import Progress, part_of

SUFFIX = ".safetensors"
NO_CHECKSUM = b"0" * 64  # in place of the checksum while it is computed
REAL = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
CHECKSUM = re.compile(rb'"sha256":"([0-9a-f]{64})"')  # inside a text of JSON, the quotes would be escaped


class CheckpointError(UserError):
    """A checkpoint is missing, damaged, or not from this project."""


@dataclass(frozen=True)
class Checkpoint:
    """Everything that sampling and resuming need.

    corpus: name, digest and n_train of the text. origin: see `origin_of`; {} in files of earlier versions. progress,
    tensors: see `TrainingState.state_dict`.
    """

    config: Config
    vocabulary: Vocabulary
    corpus: Mapping[str, Any]
    origin: Mapping[str, Any]
    progress: Progress
    tensors: Mapping[str, Tensor]

    @property
    def step(self) -> int:
        return self.progress.step

    @property
    def identity(self) -> dict[str, Any]:
        return identity_of(self.config, self.origin)

    @property
    def weights(self) -> dict[str, Tensor]:
        """The weights to sample with, by the names of the model's parameters, in float32."""
        return {name: x.float() for name, x in part_of(self.tensors, "model.").items()}

    def weights_digest(self) -> str:
        """Return the SHA-256 of the weights."""
        digest = hashlib.sha256()
        for name, x in sorted(self.weights.items()):
            digest.update(f"{name} {[*x.shape]}".encode())
            digest.update(x.contiguous().numpy().tobytes())
        return digest.hexdigest()

    def without_training_state(self) -> "Checkpoint":
        """Return a checkpoint that one can sample from, but not resume."""
        return dataclasses.replace(self, tensors={f"model.{name}": x for name, x in self.weights.items()})

    def build_model(self) -> GPT:
        """Return the trained model on the CPU, in evaluation mode."""
        model = GPT(self.config.model, len(self.vocabulary))
        model.load_state_dict(self.weights)
        return model.eval()


def save_checkpoint(checkpoint: Checkpoint, path: Path, *, keep: Path | None = None) -> None:
    """Write a checkpoint; the old file is replaced only after the new one is on disk. keep: its new name."""
    header = {
        "settings": json.dumps(dataclasses.asdict(checkpoint.config)),
        "vocabulary": json.dumps(checkpoint.vocabulary.characters),
        "corpus": json.dumps(checkpoint.corpus),
        "origin": json.dumps(checkpoint.origin),
        "progress": json.dumps(dataclasses.asdict(checkpoint.progress)),
        "sha256": NO_CHECKSUM.decode(),
    }
    tensors = {name: tensor.detach().contiguous() for name, tensor in checkpoint.tensors.items()}
    content = safetensors.torch.save(tensors, header)
    start = content.index(NO_CHECKSUM, content.index(b'"sha256":"'))
    checksum = hashlib.sha256(content).hexdigest().encode()
    try:
        with replacing(path, keep=keep) as file:
            for part in (content[:start], checksum, memoryview(content)[start + len(checksum) :]):
                file.write(part)
    except OSError as error:
        reason = f"a checkpoint of {len(content):,} bytes could not be saved ({error.strerror})"
        raise OSError(error.errno, reason, str(path)) from None


def load_checkpoint(path: Path) -> Checkpoint:
    """Return the checkpoint in a file.

    Raises CheckpointError if it is damaged or not from this project, OSError if it cannot be read.
    """
    content = read_file(path)
    _verify(content, path)
    try:
        checkpoint = _parse(content)
        check_weights(checkpoint)
    except (ValueError, LookupError, TypeError, AttributeError, SafetensorError) as error:
        raise CheckpointError(f"{path}: is not a checkpoint of this version of the project ({error})") from None
    return checkpoint


def _verify(content: bytes, path: Path) -> None:
    """Raise CheckpointError if any bit of a checkpoint has changed since it was saved."""
    if not (found := CHECKSUM.search(content)):
        raise CheckpointError(f"{path}: is damaged, or is not a checkpoint of this project")
    start, end = found.span(1)
    digest = hashlib.sha256(content[:start] + NO_CHECKSUM)
    digest.update(memoryview(content)[end:])
    if digest.hexdigest().encode() != found[1]:
        raise CheckpointError(f"{path}: is damaged (its checksum does not match); use another checkpoint")


def _parse(content: bytes) -> Checkpoint:
    size = int.from_bytes(content[:8], "little")  # of the header, which is JSON
    header = json.loads(content[8 : 8 + size])["__metadata__"]
    config = build_config(json.loads(header["settings"]))
    characters = json.loads(header["vocabulary"])
    vocabulary = make_vocabulary(characters, config.data.level)
    if vocabulary.characters != characters or not characters:
        raise ValueError(f"its vocabulary cannot be {characters!r:.40}")
    corpus, progress = json.loads(header["corpus"]), Progress(**json.loads(header["progress"]))
    origin = json.loads(header.get("origin", "{}"))
    return Checkpoint(config, vocabulary, corpus, origin, progress, safetensors.torch.load(content))


def check_weights(checkpoint: Checkpoint) -> None:
    """Raise ValueError if the weights do not fit the settings, which may ask for all memory, or are not finite."""
    with torch.device("meta"):
        expected = GPT(checkpoint.config.model, len(checkpoint.vocabulary)).state_dict()
    weights = part_of(checkpoint.tensors, "model.")
    if {name: x.shape for name, x in expected.items()} != {name: x.shape for name, x in weights.items()}:
        raise ValueError("its weights do not fit its settings")
    for name, x in checkpoint.tensors.items():
        if x.dtype not in REAL or not x.float().isfinite().all():  # as float32, with which models compute
            raise ValueError(f"{name} must be finite real numbers, but is {x.dtype}, infinite or NaN")
