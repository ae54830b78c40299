"""Show that a run survives faults: python -m experiments.torture --minutes 10

Each round starts a run, kills, fills, flips, signals and resumes it at random moments, and compares its end, tensor by
tensor, with an undisturbed run. The exit status is 1 if anything was lost.
"""

import argparse
import contextlib
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from data.encoded_cache import cached_text, record_path
from data.sources import BUNDLED
from experiments.torture.compare import differences
from experiments.torture.disturbed_run import CACHE, ENVIRONMENT, TRAIN, DisturbedRun, LostError
from training.command import CommandParser, run_command, tell_mistakes
from training.run_folder import RunFolder

MOST_FAULTS = 10  # per round
CONFIG = """
model: {{n_layer: 2, n_head: 2, n_embd: 32, block_size: 32, conv_width: 3, dropout: 0.1}}
data: {{corpus: "{text}"}}
optim: {{average_fraction: 0.1, weight_decay: 0.1}}
train: {{max_steps: 400, batch_size: 8, grow_context_at: [0.5], device: cpu, log_every_steps: 10, eval_every_steps: 50,
  checkpoint_every_steps: 20, keep_checkpoints: 6, sample_length: 50}}
"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = CommandParser(prog="experiments.torture", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10, help="start rounds for this long (%(default)s)")
    parser.add_argument("--rounds", type=int, metavar="N", help="at most N rounds")
    parser.add_argument("--seed", type=int, default=0, help="of the first round; the next ones count up (%(default)s)")
    options = parser.parse_args(arguments)
    return tell_mistakes("experiments.torture", lambda: run(options), memory="end other programs")


def run(options: argparse.Namespace) -> int:
    lost, rounds = 0, 0
    counts: Counter[str] = Counter()
    end_s = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory(prefix="torture-") as name, contextlib.ExitStack() as stack:
        text = Path(name).resolve() / "text.txt"
        stack.callback(forget, text)
        expected, duration_s = undisturbed(text)
        print(f"An undisturbed run takes {duration_s:.1f} s", flush=True)
        while time.monotonic() < end_s and rounds != options.rounds:
            seed = options.seed + rounds
            rounds += 1
            problem, faults = play_round(text.parent, seed, expected, duration_s)
            counts += faults
            print(f"seed {seed}: {faults.total()} faults, {'LOST' if problem else 'recovered'}", flush=True)
            if problem:
                lost += 1
                kept = shutil.copytree(text.with_name(f"seed-{seed}"), Path(f"torture-{seed}"), dirs_exist_ok=True)
                print(f"{problem}\nIts files are in {kept}. To repeat it:", file=sys.stderr)
                print(f"  python -m experiments.torture --rounds 1 --seed {seed}", file=sys.stderr, flush=True)
    for fault, n in counts.most_common():
        print(f"{n:6,}  {fault}")
    print(f"{rounds:,} rounds, {counts.total():,} faults, {rounds - lost:,} runs recovered, {lost:,} lost")
    return 1 if lost else 0


def undisturbed(text: Path) -> tuple[RunFolder, float]:
    """Write the text and the config into a folder, train there, and return the run and its time in seconds."""
    text.write_text((BUNDLED / "selmere.txt").read_text(encoding="utf-8")[:60_000], encoding="utf-8")
    text.with_name("run.yaml").write_text(CONFIG.format(text=text), encoding="utf-8")
    started_s = time.monotonic()
    command = [sys.executable, str(TRAIN), "--config", "run.yaml"]
    subprocess.run(command, cwd=text.parent, env=ENVIRONMENT, check=True, stdout=subprocess.DEVNULL)
    return RunFolder(text.with_name("runs") / "run"), time.monotonic() - started_s


def forget(text: Path) -> None:
    """Remove a text from the cache."""
    with contextlib.suppress(FileNotFoundError):
        cached_text([text], "utf-8", CACHE).path(CACHE).unlink()
        record_path([text], "utf-8", CACHE).unlink()


def play_round(folder: Path, seed: int, expected: RunFolder, duration_s: float) -> tuple[str | None, Counter[str]]:
    """Disturb a run with the faults of a seed; return what was lost, or None, and the faults."""
    rng = random.Random(seed)
    place = folder / f"seed-{seed}"
    place.mkdir()
    disturbed = DisturbedRun(place, folder / "run.yaml", folder / "text.txt", rng, duration_s)
    try:
        disturbed.disturb(rng.randint(1, MOST_FAULTS))
    except LostError as error:
        return str(error), disturbed.counts
    found = differences(disturbed.run, expected)
    return "\n".join(found) or None, disturbed.counts


if __name__ == "__main__":
    run_command(main)
