"""Optional TensorBoard events."""

from pathlib import Path
from typing import Any

from cli.errors import UserError


def open_tensorboard(folder: Path, *, from_step: int):
    """Return a writer of event files in the folder; it drops events of earlier sessions for steps after from_step."""
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder), purge_step=from_step + 1)


def check_tensorboard() -> None:
    """Raise UserError if TensorBoard is not installed."""
    try:
        import torch.utils.tensorboard  # noqa: F401 - the import is the check
    except ImportError:
        raise UserError("train.tensorboard=true needs TensorBoard: pip install tensorboard") from None


def write_record(writer, record: dict[str, Any]) -> None:
    """Write every number of a metrics record under its name."""
    for name, value in record.items():
        if isinstance(value, (int, float)) and name != "step":
            writer.add_scalar(name, value, record["step"])
