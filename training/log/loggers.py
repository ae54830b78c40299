"""Optional loggers, which receive the same records as metrics.jsonl."""

import dataclasses
from pathlib import Path
from typing import Any

from cli.errors import UserError
from cli.optional import optional_library
from training.config import Config


def make_logger(config: Config, folder: Path, *, from_step: int) -> "TensorBoard | Tracker | None":
    """Return the logger of `train.logger` for a session that starts after a step, or None. folder: the run's."""
    name = config.train.logger
    if name == "none":
        return None
    return TensorBoard(folder, from_step) if name == "tensorboard" else Tracker(name, config, folder, from_step)


class TensorBoard:
    """Event files in the run's folder. Events of earlier sessions for steps after from_step are dropped."""

    def __init__(self, folder: Path, from_step: int):
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder), purge_step=from_step + 1)

    def add_record(self, record: dict[str, Any]) -> None:
        for name, value in _numbers(record).items():
            self._writer.add_scalar(name, value, record["step"])

    def close(self) -> None:
        self._writer.close()


class Tracker:
    """trackio or wandb, which share these calls. Each session is a run of its own there, grouped by the run's folder.

    Raises UserError if the library refuses to start, for example without an account.
    """

    def __init__(self, name: str, config: Config, folder: Path, from_step: int):
        self._library = optional_library(name, f"train.logger={name}")
        session = f"{folder.name} from step {from_step}" if from_step else folder.name
        settings = dataclasses.asdict(config)
        try:
            self._library.init(project="character-gpt", name=session, group=str(folder), config=settings)
        except Exception as error:
            raise UserError(f"train.logger={name} does not start ({error}); use train.logger=none") from error

    def add_record(self, record: dict[str, Any]) -> None:
        self._library.log(_numbers(record), step=record["step"])

    def close(self) -> None:
        self._library.finish()


def _numbers(record: dict[str, Any]) -> dict[str, float]:
    return {name: x for name, x in record.items() if isinstance(x, (int, float)) and name != "step"}
