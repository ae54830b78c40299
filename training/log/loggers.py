"""Optional loggers, which receive the numbers of the records in metrics.jsonl."""

import dataclasses
import importlib
from pathlib import Path
from typing import Any

from cli.errors import UserError
from training.config import Config


def start_logger(config: Config, folder: Path, *, from_step: int) -> Any:
    """Return the logger of `train.logger` for a session that starts after a step; folder: the run's.

    It has the calls that trackio and wandb share. For them, each session is a separate run, grouped by the folder.
    Raises UserError if the library refuses to start, for example without an account.
    """
    name = config.train.logger
    session = f"{folder.name} from step {from_step}" if from_step else folder.name
    try:
        if name == "tensorboard":
            return EventFiles(folder, from_step)
        library = importlib.import_module(name)
        library.init(project="character-gpt", name=session, group=str(folder), config=dataclasses.asdict(config))
        return library
    except (Exception, SystemExit) as error:
        raise UserError(f"train.logger={name} does not start ({error}); use train.logger=none") from error


class EventFiles:
    """TensorBoard's files in the run's folder, without the events of earlier sessions for steps after from_step."""

    def __init__(self, folder: Path, from_step: int):
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder), purge_step=from_step + 1)
        self.finish = self._writer.close

    def log(self, numbers: dict[str, float], step: int) -> None:
        for name, number in numbers.items():
            self._writer.add_scalar(name, number, step)
