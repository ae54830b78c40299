"""Real runs that are killed, signalled, starved of disk and damaged at random moments: nothing may be lost.

TORTURE_ROUNDS=100 python -m pytest -m nightly tests/training/runs/test_torture.py plays so many rounds of each kind.
"""

import contextlib
import functools
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT
from helpers import heed_signals, run_differences

from data.sources import BUNDLED
from training.runs.checkpoint import CheckpointError, load_checkpoint
from training.runs.run_folder import RunFolder

pytestmark = pytest.mark.nightly

ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "2"))
HANGS_AFTER_S = 120
CONFIG = """
model: {n_layer: 2, n_head: 2, n_embd: 32, block_size: 32, conv_width: 3, dropout: 0.1}
data: {corpus: text.txt}
optim: {average_fraction: 0.1, weight_decay: 0.1}
train: {max_steps: 400, batch_size: 8, grow_context_at: [0.5], device: cpu, log_every_steps: 10, eval_every_steps: 20,
  keep_checkpoints: 6, sample_length: 50}
"""


def damaged(content, rng):
    """Return some content with a flipped bit, cut off, or with zeros instead."""
    flipped = bytearray(content)
    flipped[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return rng.choice([flipped, content[: rng.randrange(len(content))], bytes(len(content))])


class Torture:
    """The sessions of one run, each of which a fault may end. Every fault is followed by a resumed session."""

    def __init__(self, folder, rng, duration_s, processes):
        self.folder, self.rng, self.duration_s, self.processes = folder, rng, duration_s, processes
        self.run = RunFolder(folder / "runs/run")

    def start(self, disk_bytes=None):
        def prepare():
            heed_signals()
            if disk_bytes is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (disk_bytes, disk_bytes))

        source = ["--resume", "runs/run"] if self.run.config.is_file() else ["--config", "run.yaml"]
        several = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"] if self.processes > 1 else []
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        options = {"cwd": self.folder, "env": os.environ | {"OMP_NUM_THREADS": "1"}, "preexec_fn": prepare}
        command = [sys.executable, *several, str(ROOT / "train.py"), *source]
        return subprocess.Popen(command, start_new_session=True, **streams, **options)

    def end(self, process, statuses):
        try:
            _, errors = process.communicate(timeout=HANGS_AFTER_S)
        finally:
            process.kill()
        assert process.returncode in statuses, errors
        if self.processes == 1:
            assert "Traceback" not in errors

    def workers(self, process):
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        return list(map(int, children.split())) or [process.pid]

    def send(self, *numbers):
        """Send signals to a session at a random moment, to one of its processes if it has several."""
        process = self.start()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(self.rng.uniform(0, self.duration_s))
        for number in numbers:
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                os.kill(self.rng.choice(self.workers(process)), number)
            time.sleep(self.rng.uniform(0, 0.6))  # one Ctrl-C may arrive several times within half a second
        self.end(process, {0, 1 if self.processes > 1 else 0} | {s for n in numbers for s in (-n, 128 + n)})

    def kill_during_save(self):
        process = self.start()
        while process.poll() is None:
            if any(self.run.checkpoints.glob("*.part")):
                with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                    os.kill(self.workers(process)[0], signal.SIGKILL)
                break
            time.sleep(0.001)
        self.end(process, {0, -signal.SIGKILL, 1 if self.processes > 1 else 0})

    def fill_disk(self):
        size = self.run.latest.stat().st_size if self.run.latest.exists() else 200_000
        self.end(self.start(disk_bytes=self.rng.randrange(size * 5 // 4)), {0, 1, 2})

    def damage(self):
        """Damage the latest checkpoint if an intact one remains without it."""
        with contextlib.suppress(CheckpointError, FileNotFoundError):
            load_checkpoint(self.run.previous)
            if self.run.latest.exists():
                self.run.latest.write_bytes(damaged(self.run.latest.read_bytes(), self.rng))

    def play(self):
        faults = [functools.partial(self.send, s) for s in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)]
        faults += [self.kill_during_save, self.fill_disk, self.damage]
        if self.processes == 1:  # torchrun waits for its processes after the first
            faults.append(lambda: self.send(signal.SIGINT, signal.SIGINT))
        for _ in range(self.rng.randint(3, 10)):
            self.rng.choice(faults)()
            if self.run.path.exists() and not self.run.config.is_file():
                self.run.path.rename(self.run.path.with_name(f"unborn-{self.rng.random()}"))
        self.end(self.start(), {0})


@pytest.fixture(scope="module", params=[1, 2], ids=["one process", "two processes"])
def calm(request, tmp_path_factory):
    """Return a folder with an undisturbed run, the seconds that it took, and its number of processes."""
    folder = tmp_path_factory.mktemp("calm")
    text = (BUNDLED / "selmere.txt").read_text(encoding="utf-8")[:60_000]
    (folder / "text.txt").write_text(text, encoding="utf-8")
    (folder / "run.yaml").write_text(CONFIG, encoding="utf-8")
    started_s = time.monotonic()
    torture = Torture(folder, random.Random(0), 0, request.param)
    torture.end(torture.start(), {0})
    return folder, time.monotonic() - started_s, request.param


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_a_run_that_is_disturbed_again_and_again_ends_exactly_like_an_undisturbed_one(calm, tmp_path, seed):
    folder, duration_s, processes = calm
    for name in ("text.txt", "run.yaml"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    torture = Torture(tmp_path, random.Random(seed), duration_s, processes)
    torture.play()
    assert run_differences(torture.run, RunFolder(folder / "runs/run")) == []
