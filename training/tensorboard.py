"""Metrics for TensorBoard, where it is installed and asked for."""

from pathlib import Path
from typing import Any


def open_tensorboard(folder: Path, *, from_step: int = 0):
    """A writer of event files into the folder that forgets what was written after from_step."""
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder), purge_step=from_step + 1)


def check_tensorboard() -> None:
    """Raises ValueError where TensorBoard is not installed."""
    try:
        import torch.utils.tensorboard  # noqa: F401 - the import is the check
    except ImportError:
        raise ValueError("train.tensorboard=true needs TensorBoard: pip install tensorboard") from None


def write_record(writer, record: dict[str, Any]) -> None:
    """Every number of a line of metrics, under its own name."""
    for name, value in record.items():
        if isinstance(value, (int, float)) and name != "step":
            writer.add_scalar(name, value, record["step"])
