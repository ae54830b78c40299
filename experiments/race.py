"""How long a config takes to a validation loss, from the start of the command: python -m experiments.race"""

import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from training.command import CommandParser

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Result:
    """The evaluation at which a run first was at the target or below; its best one, if it never was."""

    seed: int
    elapsed_s: float
    step: int
    loss: float
    reached: bool

    def __str__(self) -> str:
        said = "reached" if self.reached else "NOT REACHED, best"
        return f"seed {self.seed}: {said} {self.loss:.4f} at step {self.step:,}, {self.elapsed_s:.1f} s"


class RaceError(RuntimeError):
    """The training command failed; the message is what it said."""


def main() -> int:
    parser = CommandParser(prog="experiments.race", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="the config to run")
    parser.add_argument("--target", type=float, required=True, metavar="LOSS", help="validation loss, nats a character")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="runs, with seeds 0 to N-1 (%(default)s)")
    parser.add_argument("overrides", nargs="*", metavar="section.key=value", help="settings that replace the file's")
    options = parser.parse_intermixed_args()
    if options.seeds < 1:
        parser.error("--seeds must be at least 1")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # and the run that it started ends with it
    results = []
    try:
        for seed in range(options.seeds):
            results.append(race(options.config, options.target, seed, options.overrides))
            print(results[-1], flush=True)
    except RaceError as error:
        print(f"experiments.race: {error}", file=sys.stderr)
        return 2
    reached = [result.elapsed_s for result in results if result.reached]
    if len(reached) < len(results):
        print(f"{len(reached)} of {len(results)} seeds reached {options.target}")
        return 1
    print(f"Median time to {options.target}: {statistics.median(reached):.1f} s from the start of the command")
    return 0


def race(config: Path, target: float, seed: int, overrides: list[str]) -> Result:
    """Trains with a seed until the first evaluation at the target or below, and stops there.

    Time is wall clock from before the process starts, evaluations and checkpoints included. How finely it can be told
    follows from the config's train.eval_every_steps.
    """
    command = [sys.executable, str(ROOT / "train.py"), "--config", str(config), *overrides]
    command += [f"train.seed={seed}", f"train.name=race-{config.stem}-{seed}"]
    metrics, best = None, None
    began_s = time.perf_counter()
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            for line in process.stdout:
                elapsed_s = time.perf_counter() - began_s
                if line.startswith("Running on "):
                    metrics = Path(line.rstrip("\n").rpartition(" into ")[2]) / "metrics.jsonl"
                elif "  validation loss " in line:
                    step, loss = last_evaluation(metrics)
                    result = Result(seed, elapsed_s, step, loss, loss <= target)
                    best = result if best is None or loss < best.loss else best
                    if best.reached:
                        return best
            if process.wait():
                errors.seek(0)
                raise RaceError(errors.read().strip() or f"the run ended with status {process.returncode}")
        finally:
            process.terminate()
            process.communicate()
    if best is None:
        raise RaceError("the run ended before its first evaluation; lower train.eval_every_steps")
    return best


def last_evaluation(metrics: Path) -> tuple[int, float]:
    """Step and validation loss of the newest evaluation in a run's metrics."""
    records = map(json.loads, metrics.read_text(encoding="utf-8").splitlines())
    *_, newest = (record for record in records if "val_loss" in record)
    return newest["step"], newest["val_loss"]


if __name__ == "__main__":
    sys.exit(main())
