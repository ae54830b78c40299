"""Show that a run survives faults: python -m tests.torture --minutes 10

Each round starts a run, kills, fills, flips, signals and resumes it at random moments, and compares its end, tensor by
tensor, with an undisturbed run. The exit status is 1 if anything was lost.
"""

import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from cli.command import run_command
from cli.errors import UserError
from data.encoded_cache import cached_text
from data.sources import BUNDLED, cache_folder
from experiments.command import command, option, positive, whole
from tests.torture.disturbed_run import ENVIRONMENT, TRAIN, DisturbedRun, Undisturbed
from training.runs.run_folder import RunFolder

CONFIG = """
model: {{n_layer: 2, n_head: 2, n_embd: 32, block_size: 32, conv_width: 3, dropout: 0.1}}
data: {{corpus: "{text}"}}
optim: {{average_fraction: 0.1, weight_decay: 0.1}}
train: {{max_steps: 400, batch_size: 8, grow_context_at: [0.5], device: cpu, log_every_steps: 10, eval_every_steps: 50,
  checkpoint_every_steps: 20, keep_checkpoints: 6, sample_length: 50, processes: {processes}}}
"""


@command(
    option("--minutes", type=positive, default=10, help="start rounds for this long (%(default)s)"),
    option("--rounds", type=whole(1), metavar="N", help="at most N rounds"),
    option("--seed", type=int, default=0, help="of the first round; the next ones count up (%(default)s)"),
    option(
        "--processes", type=whole(1), default=1, metavar="N", help="of each run; torchrun starts several (%(default)s)"
    ),
)
def main(options: Namespace) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends the disturbed process too
    lost, rounds = 0, 0
    counts: Counter[str] = Counter()
    end_s = time.monotonic() + 60 * options.minutes
    with undisturbed_run(options.processes) as expected:
        print(f"An undisturbed run takes {expected.duration_s:.1f} s", flush=True)
        while time.monotonic() < end_s and rounds != options.rounds:
            seed = options.seed + rounds
            rounds += 1
            disturbed = DisturbedRun(seed, expected)
            problems = disturbed.play()
            counts += disturbed.counts
            outcome = "LOST" if problems else "recovered"
            print(f"seed {seed}: {disturbed.counts.total()} faults, {outcome}", flush=True)
            if problems:
                lost += 1
                kept = shutil.copytree(disturbed.folder, Path(f"torture-{seed}"), dirs_exist_ok=True)
                repeat = f"python -m tests.torture --rounds 1 --seed {seed} --processes {options.processes}"
                print(*problems, f"Its files are in {kept}. To repeat it:\n  {repeat}", sep="\n", file=sys.stderr)
            shutil.rmtree(disturbed.folder)
    for fault, n in counts.most_common():
        print(f"{n:6,}  {fault}")
    print(f"{rounds:,} rounds, {counts.total():,} faults, {rounds - lost:,} runs recovered, {lost:,} lost")
    return 1 if lost else 0


@contextlib.contextmanager
def undisturbed_run(processes: int) -> Iterator[Undisturbed]:
    """Train a run without disturbing it; at the end, remove it and its encoded text."""
    with tempfile.TemporaryDirectory(prefix="torture-") as name:
        folder = Path(name).resolve()
        text, config = folder / "text.txt", folder / "run.yaml"
        play = (BUNDLED / "selmere.txt").read_text(encoding="utf-8")[:60_000]
        text.write_text(play, encoding="utf-8")
        config.write_text(CONFIG.format(text=text, processes=processes), encoding="utf-8")
        encoded = Path(cached_text([text], "utf-8", cache_folder() / "encoded").ids.file.name)
        try:
            started_s = time.monotonic()
            command = [sys.executable, str(TRAIN), "--config", str(config)]
            trained = subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True)
            if trained.returncode:
                raise UserError(f"the undisturbed run failed: {trained.stderr.strip()}")
            duration_s = time.monotonic() - started_s
            yield Undisturbed(RunFolder(folder / "runs" / config.stem), config, processes, encoded, duration_s)
        finally:
            encoded.unlink(missing_ok=True)


if __name__ == "__main__":
    run_command(main)
