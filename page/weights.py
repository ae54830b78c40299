"""The weights of a model as a page carries them: small, and decoded by weights.js."""

import base64
import dataclasses
import gzip
from typing import Any

import torch
from torch import Tensor

from training.runs.checkpoint import Checkpoint

LEVELS = 127  # of a number of 8 bits, on either side of 0
ROWS, SCALES, SYMBOLS = (f"memories.ngrams.{name}" for name in ("rows.weight", "scales", "symbols"))


def payload(checkpoint: Checkpoint) -> tuple[dict[str, Any], str]:
    """Return the header of a model, which can become JSON, and its weights in gzip and base64.

    The header has the settings of the model with the shapes of its layers, and for each tensor its offset in bytes,
    shape and dtype.
    """
    tensors, content = {}, bytearray()
    for name, x in sorted(stored(checkpoint.weights).items()):
        values = x.contiguous().numpy()
        tensors[name] = {"offset": len(content), "shape": [*x.shape], "dtype": values.dtype.name}
        content += values.tobytes()
    config = checkpoint.config.model
    settings = dataclasses.asdict(config) | {"layers": [dataclasses.asdict(layer) for layer in config.layers]}
    return {"config": settings, "tensors": tensors}, zipped(content)


def zipped(content: bytes | bytearray) -> str:
    """Return bytes in gzip, without a time, and base64: equal models make equal pages."""
    return base64.b64encode(gzip.compress(content, mtime=0)).decode()


def stored(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors that a page stores: weights in float16, and rows of n-grams with 8 bits a number.

    Those are the stored rows (n, width) times their scales (n, 1).
    """
    small = {name: x.half() if x.is_floating_point() else x for name, x in weights.items()}
    if ROWS in weights:
        small[SYMBOLS] = weights[SYMBOLS].to(torch.uint16)
        scales = weights[ROWS].abs().amax(1, keepdim=True) / LEVELS
        small[SCALES] = scales.half().clamp(min=torch.finfo(torch.half).tiny)
        small[ROWS] = (weights[ROWS] / small[SCALES].float()).round().to(torch.int8)
    return small
