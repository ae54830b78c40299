"""Checkpoints: safetensors files whose header describes the run. Loading one verifies it and never executes code."""

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor
from torch.overrides import TorchFunctionMode

from cli.errors import UserError
from data.files import replacing
from data.vocabulary import Vocabulary
from model.gpt import GPT
from training.config import Config
from training.config_file import LAST_READER, build_config
from training.identity import identity_of
from training.runs.json_values import checked, checked_origin
from training.state import Progress, TrainingState, part_of

SUFFIX = ".safetensors"
FORMAT = 8  # of the files; it rises, and LAST_READER changes, when a setting is removed or a tensor is added
NO_CHECKSUM = b"0" * 64  # in place of the checksum while it is computed
REAL = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
CORPUS = {"name": str, "digest": str, "n_train": int | None}
MOST_BYTES = 1 << 27  # for positions and their cache, in any model; 100 times those of its weights, if that is more
CHECKSUM = re.compile(rb'"sha256":"([0-9a-f]{64})"')  # inside a text of JSON, the quotes would be escaped


class CheckpointError(UserError):
    """A checkpoint is missing, damaged, or not from this project."""


@dataclass(frozen=True)
class Checkpoint:
    """Everything that sampling and resuming need.

    corpus: name, digest and n_train of the text, see `Corpus`. origin: see `origin_of`. tensors: see
    `TrainingState.tensors`.
    """

    config: Config
    vocabulary: Vocabulary
    corpus: Mapping[str, Any]
    origin: Mapping[str, Any]
    progress: Progress
    tensors: Mapping[str, Tensor]

    @classmethod
    def of(cls, state: TrainingState) -> "Checkpoint":
        """Return the state of a run as a checkpoint. Raises TrainingError if a number in it is not finite."""
        state.check_finite()
        corpus = {name: getattr(state.corpus, name) for name in CORPUS}
        progress, vocabulary = dataclasses.replace(state.progress), state.corpus.vocabulary
        checkpoint = cls(state.config, vocabulary, corpus, state.origin, progress, state.tensors())
        if not state.progress.step:
            check_weights(checkpoint)  # a run that has begun can be resumed
        return checkpoint

    @property
    def step(self) -> int:
        return self.progress.step

    @property
    def identity(self) -> dict[str, Any]:
        return identity_of(self.config, self.origin)

    @property
    def weights(self) -> dict[str, Tensor]:
        """The weights to sample with, by the names of the model's parameters, in float32; whole numbers stay so."""
        tensors = part_of(self.tensors, "model.")
        return {name: x.float() if x.is_floating_point() else x for name, x in tensors.items()}

    def weights_digest(self) -> str:
        """Return the SHA-256 of the weights."""
        digest = hashlib.sha256()
        for name, x in sorted(self.weights.items()):
            digest.update(f"{name} {[*x.shape]}".encode())
            digest.update(x.contiguous().numpy().tobytes())
        return digest.hexdigest()

    def build_model(self) -> GPT:
        """Return the trained model on the CPU, in evaluation mode."""
        model = GPT(self.config.model, len(self.vocabulary))
        model.load_state_dict(self.weights)
        return model.eval()


def save_checkpoint(checkpoint: Checkpoint, path: Path, *, keep: Path | None = None) -> None:
    """Write a checkpoint; the old file is replaced only after the new one is on disk. keep: its new name."""
    header = {
        "format": str(FORMAT),
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
    with replacing(path, keep=keep) as file:
        for part in (content[:start], checksum, memoryview(content)[start + len(checksum) :]):
            file.write(part)


def load_checkpoint(path: Path) -> Checkpoint:
    """Return the checkpoint in a file.

    Raises CheckpointError if it is damaged or not from this project, OSError if it cannot be read.
    """
    content = path.read_bytes()
    _verify(content, path)
    size = int.from_bytes(content[:8], "little")
    try:
        header = json.loads(content[8 : 8 + size])["__metadata__"]
        if header.get("format") != str(FORMAT):
            raise ValueError(f"another version wrote it; commit {LAST_READER} of this project can read earlier ones")
        checkpoint = _parse(header, content)
        check_weights(checkpoint)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, SafetensorError) as error:
        raise CheckpointError(f"{path}: is not a checkpoint of this version of the project ({error})") from None
    return checkpoint


def _verify(content: bytes, path: Path) -> None:
    """Raise CheckpointError if any bit of a checkpoint has changed since it was saved."""
    if not (found := CHECKSUM.search(content)):
        raise CheckpointError(f"{path}: is damaged, or is not a checkpoint of this project; use another")
    start, end = found.span(1)
    digest = hashlib.sha256(content[:start] + NO_CHECKSUM)
    digest.update(memoryview(content)[end:])
    if digest.hexdigest().encode() != found[1]:
        raise CheckpointError(f"{path}: is damaged (its checksum does not match); use another checkpoint")


def _parse(header: Mapping[str, str], content: bytes) -> Checkpoint:
    config = build_config(json.loads(header["settings"]))
    characters = json.loads(header["vocabulary"])
    vocabulary = Vocabulary(characters)
    if vocabulary.characters != characters or not characters:
        raise ValueError(f"its vocabulary cannot be {characters!r:.40}")
    corpus = checked(json.loads(header["corpus"]), CORPUS, CORPUS)
    origin = checked_origin(json.loads(header["origin"]))
    progress = _progress(json.loads(header["progress"]))
    return Checkpoint(config, vocabulary, corpus, origin, progress, safetensors.torch.load(content))


def _progress(values: Any) -> Progress:
    if isinstance(values, dict) and values.get("best_loss") == math.inf:
        del values["best_loss"]  # the default; no other number may be infinite
    progress = Progress(**checked(values, get_type_hints(Progress)))
    if len(progress.log_sizes) != 2:
        raise ValueError(f"log_sizes cannot be {progress.log_sizes!r:.40}")
    return progress


class WithoutInit(TorchFunctionMode):
    """Leaves weights as they are: to draw some without memory, PyTorch would import its compiler in seconds."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if getattr(function, "__module__", "") == "torch.nn.init":
            return None
        return function(*args, **kwargs or {})


def check_weights(checkpoint: Checkpoint) -> None:
    """Raise ValueError if the weights do not fit the settings, which may ask for all memory, or are not finite."""
    config = checkpoint.config.model
    with torch.device("meta"), WithoutInit():
        model = GPT(config, len(checkpoint.vocabulary))
    shapes = {name: x.shape for name, x in model.state_dict().items()}
    needed = {f"model.{name}": shape for name, shape in shapes.items()}
    allowed = needed | {f"trained.{name}": x.shape for name, x in model.named_parameters()}
    allowed |= dict.fromkeys(("loss_sum", "loss_count"), torch.Size())
    found = {name: x.shape for name, x in checkpoint.tensors.items() if not name.startswith("optimizer.")}
    if not needed.items() <= found.items() <= allowed.items():
        raise ValueError("its weights do not fit its settings")
    weights = sum(x.nbytes for x in model.parameters())
    tables = sum(x.nbytes for x in model.buffers())
    cached = 4 * sum(2 * layer.n_kv_head * layer.head_size + config.n_embd for layer in config.layers)  # a position
    if (n_bytes := tables + config.block_size * cached) > max(MOST_BYTES, 100 * weights):
        raise ValueError(f"its positions and cache would have {n_bytes:,} bytes; lower model.block_size")
    for name, x in checkpoint.tensors.items():
        may_count = name.startswith("optimizer.") or name == "model.memories.ngrams.symbols"
        is_number = x.dtype in REAL or (may_count and not x.is_floating_point())
        if not is_number or (x.is_floating_point() and not x.float().isfinite().all()):  # as models compute
            raise ValueError(f"{name} must be finite real numbers, but is {x.dtype}, infinite or NaN")
    if config.ngrams:
        ngrams = part_of(checkpoint.tensors, "model.memories.ngrams.")
        has_symbols = sorted(ngrams["symbols"].tolist()) == [*range(1, len(checkpoint.vocabulary) + 1)]
        if not has_symbols or ngrams["counts"].min() < 0 or ngrams["prior"] <= 0:
            raise ValueError(
                "its n-grams need the symbols 1, 2, ... once each, counts of at least 0 and a prior above 0"
            )
