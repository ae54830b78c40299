"""Optional TensorBoard events."""

from pathlib import Path
from typing import Any


class TensorBoard:
    """Event files in a folder. Events of earlier sessions for steps after from_step are dropped."""

    def __init__(self, folder: Path, *, from_step: int):
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder), purge_step=from_step + 1)

    def add_record(self, record: dict[str, Any]) -> None:
        """Write every number of a metrics record under its name."""
        for name, value in record.items():
            if isinstance(value, (int, float)) and name != "step":
                self._writer.add_scalar(name, value, record["step"])

    def close(self) -> None:
        self._writer.close()
