"""Measure how long a config takes to reach a validation loss: python -m experiments.race"""

import signal
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from pathlib import Path
from typing import NamedTuple

from cli.command import run_command
from cli.errors import UserError
from experiments.command import command, option, whole
from training.config_file import load_config, to_yaml
from training.runs.metrics import read_records
from training.runs.run_folder import RunFolder
from training.runs.starting import prepare_text
from training.sweep.workers import TRAIN

POLL_EVERY_S = 0.1


class RaceResult(NamedTuple):
    """An evaluation of a run. elapsed_s: since the start of the training command, as its metrics record it."""

    step: int
    elapsed_s: float
    loss: float


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
    reached = []
    for seed in range(options.seeds):
        step, elapsed_s, loss = race(options.config, options.target, seed, options.overrides)
        reached += [elapsed_s] if loss <= options.target else []
        outcome = "reached" if loss <= options.target else "NOT REACHED, best"
        print(f"seed {seed}: {outcome} {loss:.4f} at step {step:,}, {elapsed_s:.1f} s", flush=True)
    if len(reached) < options.seeds:
        print(f"{len(reached)} of {options.seeds} seeds reached {options.target}")
        return 1
    print(f"Median time to {options.target}: {statistics.median(reached):.1f} s from the start of the command")
    return 0


def race(config_file: Path, target: float, seed: int, overrides: list[str]) -> RaceResult:
    """Train with a seed up to the first evaluation at or below the target, and return that, or else the best one.

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
            reached, running = None, True
            while running and not reached:
                time.sleep(POLL_EVERY_S)
                running = process.poll() is None  # checked before reading, so that no record is missed
                records = [record for record in read_records(folder.metrics) if "val_loss" in record]
                results = [RaceResult(r["step"], r["elapsed_s"], r["val_loss"]) for r in records]
                reached = next((result for result in results if result.loss <= target), None)
        finally:
            process.terminate()
            process.wait()
        if process.returncode and not reached:
            errors.seek(0)
            raise UserError(errors.read().strip() or f"the run ended with status {process.returncode}")
    if not results:
        raise UserError("the run ended before its first evaluation; lower train.eval_every_steps")
    return reached or min(results, key=lambda result: result.loss)


if __name__ == "__main__":
    run_command(main)
