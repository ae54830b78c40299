"""Measure how long a config takes to reach a validation loss: python -m experiments.race"""

import signal
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path

from cli.command import run_command
from cli.errors import UserError
from experiments.command import command, option, whole
from training.runs.metrics import read_records
from training.runs.run_folder import RunFolder
from training.runs.starting import prepare_text
from training.settings.config_file import load_config, to_yaml
from training.sweep.workers import TRAIN

POLL_EVERY_S = 0.1


@dataclass(frozen=True)
class RaceResult:
    """The first evaluation at or below the target, or the best one if no evaluation reached it.

    elapsed_s: since the start of the training command, as its metrics record it.
    """

    run: Path
    elapsed_s: float
    step: int
    loss: float
    reached: bool

    def __str__(self) -> str:
        outcome = "reached" if self.reached else "NOT REACHED, best"
        return f"{outcome} {self.loss:.4f} at step {self.step:,}, {self.elapsed_s:.1f} s"


@command(
    option("--config", type=Path, required=True, metavar="FILE", help="the config to run"),
    option("--target", type=float, required=True, metavar="LOSS", help="validation loss to reach"),
    option("--seeds", type=whole(1), default=3, metavar="N", help="train with seeds 0 to N-1 (%(default)s)"),
    option("overrides", nargs="*", metavar="section.key=value", help="override settings of the file"),
    memory="lower train.batch_size or model.n_embd",
)
def main(options: Namespace) -> int:
    """Train with each seed and return the exit status: 1 if a seed did not reach the target."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends the training command too
    results = []
    for seed in range(options.seeds):
        results.append(race(options.config, options.target, seed, options.overrides))
        print(f"seed {seed}: {results[-1]}", flush=True)
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
    command = [sys.executable, str(TRAIN), "--resume", str(folder.path)]
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        try:
            best, running = None, True
            while running and not (best and best.reached):
                time.sleep(POLL_EVERY_S)
                running = process.poll() is None  # checked before reading, so that no record is missed
                best = _best(folder, target)
        finally:
            process.terminate()
            process.wait()
        if process.returncode and not (best and best.reached):
            errors.seek(0)
            raise UserError(errors.read().strip() or f"the run ended with status {process.returncode}")
    if best is None:
        raise UserError("the run ended before its first evaluation; lower train.eval_every_steps")
    return best


def _best(folder: RunFolder, target: float) -> RaceResult | None:
    """Return the first evaluation so far at or below the target, or else the best one."""
    results = [
        RaceResult(folder.path, record["elapsed_s"], record["step"], loss, loss <= target)
        for record in read_records(folder.metrics)
        if (loss := record.get("val_loss")) is not None
    ]
    return next((r for r in results if r.reached), min(results, key=lambda r: r.loss, default=None))


if __name__ == "__main__":
    run_command(main)
