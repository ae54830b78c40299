"""Checkpoints: self-contained, verified files that are written atomically."""

import contextlib
import hashlib
import io
import pickle
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from cli.errors import UserError, is_out_of_memory
from data.files import replacing
from data.vocabulary import Vocabulary, make_vocabulary
from model.gpt import GPT
from training.config import Config
from training.config_file import build_config, upgraded

FORMAT = 1
RENAMED = {"head.weight": "lm_head.weight"}  # parameters whose names in older checkpoints differ
CHECKSUM = b"sha256:"
CHECKSUM_BYTES = len(CHECKSUM) + 64


class CheckpointError(UserError):
    """A checkpoint is missing, damaged, or not from this project."""


@dataclass(frozen=True)
class Checkpoint:
    """Everything that sampling and resuming need.

    settings: the config as nested mappings. characters: the vocabulary in the order of the ids. corpus: name, digest
    and n_characters of the text. model: the model's state dict. optimizers: each optimiser's state. progress: see
    `training.state.Progress`. trained: the weights that training continues with, if those of `model` are averages.
    """

    settings: Mapping[str, Any]
    characters: str
    corpus: Mapping[str, Any]
    model: Mapping[str, torch.Tensor]
    optimizers: list[Mapping]
    progress: Mapping[str, Any]
    trained: Mapping[str, torch.Tensor] | None = None

    @property
    def step(self) -> int:
        return self.progress["step"]

    def config(self) -> Config:
        return build_config(self.settings)

    @property
    def vocabulary(self) -> Vocabulary:
        return make_vocabulary(self.characters, self.config().data.level)

    def build_model(self) -> GPT:
        """Return the trained model on the CPU, in evaluation mode."""
        model = GPT(self.config().model, len(self.characters))
        load_weights(model, self.model)
        return model.eval()

    def check_types(self) -> None:
        """Raise TypeError or ValueError if a field is wrong: a checksum proves only that a file is whole."""
        self.config()
        weights = [*self.model.items(), *(self.trained or {}).items()]
        right = {
            "settings": isinstance(self.settings, dict),
            "characters": isinstance(self.characters, str)
            and self.characters == Vocabulary(self.characters).characters != "",
            "corpus": isinstance(self.corpus.get("name"), str) and isinstance(self.corpus.get("digest"), str),
            "model": all(isinstance(name, str) and isinstance(value, torch.Tensor) for name, value in weights),
            "optimizers": all(isinstance(state, dict) for each in self.optimizers for state in each.values()),
            "progress": type(self.progress.get("step")) is int
            and self.step >= 0
            and all(isinstance(self.progress.get(name, 0), (int, float)) for name in ("best_loss", "best_step")),
        }
        if wrong := [name for name in right if not right[name]]:
            raise TypeError(f"its {wrong[0]} cannot be {vars(self)[wrong[0]]!r:.40}")


def load_weights(model: GPT, weights: Mapping[str, torch.Tensor]) -> None:
    """Load a state dict. Raises CheckpointError if it is not of this model."""
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        reason = " ".join(str(error).splitlines()[1:2]).strip()
        raise CheckpointError(f"the checkpoint's weights do not fit its settings ({reason})") from None


def save_checkpoint(checkpoint: Checkpoint, *paths: Path, keep: Path | None = None) -> None:
    """Write the checkpoint to each path in order; an old file is replaced only after the new one is on disk.

    keep: the new name of the file that the last path replaces.
    """
    buffer = io.BytesIO()
    torch.save({"format": FORMAT, **vars(checkpoint)}, buffer)
    content = _with_checksum(buffer)
    for path in paths:
        try:
            with replacing(path, keep=keep if path == paths[-1] else None) as file:
                file.write(content)
        except OSError as error:
            reason = f"a checkpoint of {len(content):,} bytes could not be saved ({error.strerror})"
            raise OSError(error.errno, reason, str(path)) from None


def load_checkpoint(path: Path) -> Checkpoint:
    """Return the checkpoint in a file.

    Raises CheckpointError if it is missing, damaged or not from this project, OSError if it cannot be read.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such checkpoint") from None
    _verify_checksum(content, path)
    with reading(path):
        fields = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        if fields.pop("format") != FORMAT:
            raise CheckpointError(
                f"{path}: was written by another version of this project; use that one, or train again"
            )
        fields["model"] = {RENAMED.get(name, name): value for name, value in fields["model"].items()}
        fields["settings"] = upgraded(fields["settings"])
        checkpoint = Checkpoint(**fields)
        checkpoint.check_types()
        return checkpoint


def _first_line(error: BaseException) -> str:
    if str(error).startswith("Weights only load failed"):  # PyTorch advises to load it all the same
        return "it contains more than tensors and plain values, and is not executed"
    return (str(error).splitlines() or ["it ends too early"])[0]


@contextlib.contextmanager
def reading(path: Path, kind: str = "a checkpoint of this project") -> Iterator[None]:
    """Turn the errors of content that is not of this kind into a CheckpointError that names `path`."""
    try:
        yield
    except CheckpointError:
        raise
    except ValueError as error:
        raise CheckpointError(f"{path}: cannot be read ({_first_line(error)})") from None
    except (
        RuntimeError,
        pickle.UnpicklingError,
        AttributeError,
        LookupError,
        TypeError,
        EOFError,
        OverflowError,
    ) as error:
        if is_out_of_memory(error):
            raise
        raise CheckpointError(f"{path}: is not {kind} ({_first_line(error)})") from None


def _with_checksum(archive: io.BytesIO) -> memoryview:
    """Return the content of a zip archive, after making a checksum its comment: the SHA-256 of everything before it.

    The checksums of the zip format do not cover its headers, and `torch.load` does not check them. The archive's last
    two bytes are the length of its comment, 0 before that.
    """
    checksum = _checksum(archive.getbuffer()[:-2])
    archive.seek(-2, io.SEEK_END)
    archive.write(checksum)
    return archive.getbuffer()


def _checksum(content: memoryview) -> bytes:
    digest = hashlib.sha256(content).hexdigest().encode()
    return struct.pack("<H", CHECKSUM_BYTES) + CHECKSUM + digest


def _verify_checksum(content: bytes, path: Path) -> None:
    if not content.strip(b"\0"):
        raise CheckpointError(f"{path}: is damaged (it is empty)")
    size = max(0, len(content) - CHECKSUM_BYTES - 2)  # of the archive, without the length of its comment
    if content[size:] == _checksum(memoryview(content)[:size]):
        return
    is_archive = b"PK\3\4".startswith(content[:4])
    if not is_archive or content[-22:-18] == b"PK\5\6":  # an intact archive without a comment
        raise CheckpointError(
            f"{path}: is not a checkpoint of this project (it carries no checksum); give a run folder"
        )
    raise CheckpointError(f"{path}: is damaged (its checksum does not match); use another checkpoint")
