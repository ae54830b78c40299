"""Measure how long a config takes to reach a validation loss: python -m experiments.race"""

import argparse
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cli.command import CommandParser, report_errors, run_command
from cli.errors import UserError
from experiments.options import whole
from training.runs.metrics import read_records
from training.runs.preparation import prepare_text
from training.runs.run_folder import RunFolder
from training.settings.config_file import load_config, to_yaml

TRAIN = Path(__file__).resolve().parents[1] / "train.py"
POLL_EVERY_S = 0.1


@dataclass(frozen=True)
class RaceResult:
    """The first evaluation at or below the target, or the best one if no evaluation reached it.

    elapsed_s: since the start of the training command, as its metrics record it.
    """

    run: Path
    seed: int
    elapsed_s: float
    step: int
    loss: float
    reached: bool

    def __str__(self) -> str:
        outcome = "reached" if self.reached else "NOT REACHED, best"
        return f"seed {self.seed}: {outcome} {self.loss:.4f} at step {self.step:,}, {self.elapsed_s:.1f} s"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = CommandParser(prog="experiments.race", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="the config to run")
    parser.add_argument("--target", type=float, required=True, metavar="LOSS", help="validation loss to reach")
    parser.add_argument("--seeds", type=whole(1), default=3, metavar="N", help="with seeds 0 to N-1 (%(default)s)")
    parser.add_argument("overrides", nargs="*", metavar="section.key=value", help="override settings of the file")
    options = parser.parse_intermixed_args(arguments)
    return report_errors("experiments.race", lambda: run(options), memory="lower train.batch_size or model.n_embd")


def run(options: argparse.Namespace) -> int:
    """Train with each seed and return the exit status: 1 if a seed did not reach the target."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends the training command too
    results = []
    for seed in range(options.seeds):
        results.append(race(options.config, options.target, seed, options.overrides))
        print(results[-1], flush=True)
    reached = [result.elapsed_s for result in results if result.reached]
    if len(reached) < len(results):
        print(f"{len(reached)} of {len(results)} seeds reached {options.target}")
        return 1
    print(f"Median time to {options.target}: {statistics.median(reached):.1f} s from the start of the command")
    return 0


def race(config_file: Path, target: float, seed: int, overrides: list[str]) -> RaceResult:
    """Train with a seed up to the first evaluation at or below the target, and stop there.

    The time includes evaluations and checkpoints; train.eval_every_steps sets the resolution. Raises UserError if the
    config is invalid or the training command fails.
    """
    config = load_config(config_file, [*overrides, f"train.seed={seed}"])
    config, _, name = prepare_text(config, f"race-{config_file.stem}-{seed}")
    folder = RunFolder.create(name, to_yaml(config))
    best = None
    with tempfile.TemporaryFile("w+") as errors:
        command = [sys.executable, str(TRAIN), "--resume", str(folder.path)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        try:
            n_read, running = 0, True
            while running:
                time.sleep(POLL_EVERY_S)
                running = process.poll() is None  # checked before reading, so that no record is missed
                records = read_records(folder.metrics)
                for record in records[n_read:]:
                    if (loss := record.get("val_loss")) is not None and (best is None or loss < best.loss):
                        best = RaceResult(folder.path, seed, record["elapsed_s"], record["step"], loss, loss <= target)
                        if best.reached:
                            return best
                n_read = len(records)
            if process.returncode:
                errors.seek(0)
                raise UserError(errors.read().strip() or f"the run ended with status {process.returncode}")
        finally:
            process.terminate()
            process.wait()
    if best is None:
        raise UserError("the run ended before its first evaluation; lower train.eval_every_steps")
    return best


if __name__ == "__main__":
    run_command(main)
