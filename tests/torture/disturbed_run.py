"""A run that is disturbed again and again, and resumed each time."""

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.torture import faults
from tests.torture.compare import differences
from training.runs.run_folder import RunFolder

TRAIN = Path(__file__).parents[2] / "train.py"
MOST_FAULTS = 10  # per round
HANGS_AFTER_S = 120
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}  # another number of threads would change the last bits
# A signal that arrives before the run has begun ends the process without a word.
STOPPED = (-signal.SIGKILL, -signal.SIGINT, -signal.SIGTERM, 128 + signal.SIGINT, 128 + signal.SIGTERM)
FULL_DISK, TEXT_CUT = "full disk", "encoded text cut while in use"
Fault = Callable[[subprocess.Popen, random.Random], bool]  # whether the fault happened before the process ended
WHILE_STOPPED: dict[str, Callable[[Path, random.Random], None]] = {
    "bit flipped in a checkpoint": faults.flip_bit,
    "checkpoint cut": faults.truncate,
    "checkpoint filled with zeros": faults.fill_with_zeros,
    "encoded text deleted": lambda path, _: path.unlink(),
}


class LostError(Exception):
    """The run did not survive a fault; the message says how."""


@dataclass(frozen=True)
class Undisturbed:
    """A finished run of a number of processes, its config, its encoded text, and the time that it took."""

    run: RunFolder
    config: Path
    processes: int
    encoded: Path
    duration_s: float


class DisturbedRun:
    """A run with the config of an undisturbed one, in a new folder. The seed selects the faults and their moments.

    counts: the faults so far, by name.
    """

    def __init__(self, seed: int, expected: Undisturbed):
        self.expected, self.rng = expected, random.Random(seed)
        self.folder = expected.config.with_name(f"seed-{seed}")
        self.folder.mkdir()
        self.run = RunFolder(self.folder / "runs" / expected.config.stem)
        self.counts: Counter[str] = Counter()
        self.while_running: dict[str, Fault] = {
            "SIGKILL": partial(faults.send, signal.SIGKILL),
            "SIGTERM": partial(faults.send, signal.SIGTERM),
            "Ctrl-C": partial(faults.send, signal.SIGINT),
            "two Ctrl-C": faults.send_twice,
            "SIGKILL during a save": partial(faults.kill_during_save, self.run),
            TEXT_CUT: partial(faults.cut_while_running, expected.encoded),
        }
        if expected.processes > 1:
            del self.while_running["two Ctrl-C"]  # torchrun waits for its processes after the first

    def play(self) -> list[str]:
        """Disturb sessions of the run or the files between them, let it finish, and return what was lost."""
        try:
            for _ in range(self.rng.randint(1, MOST_FAULTS)):
                self._disturb(self.rng.choice([*self.while_running, *WHILE_STOPPED, FULL_DISK]))
            self._session("an undisturbed session")
        except LostError as error:
            return [str(error)]
        return differences(self.run, self.expected.run) if self.run.metrics.is_file() else ["the run has no folder"]

    def _disturb(self, name: str) -> None:
        if name == FULL_DISK:
            size = self.run.latest.stat().st_size if self.run.latest.exists() else 200_000
            self._session(name, disk_bytes=self.rng.randrange(size * 5 // 4))
        elif name in self.while_running:
            self._session(name, self.while_running[name])
        else:
            path = self.expected.encoded if "text" in name else faults.expendable_checkpoint(self.run)
            if path and faults.has_content(path):
                WHILE_STOPPED[name](path, self.rng)
                self.counts[name] += 1

    def _session(self, name: str, fault: Fault | None = None, *, disk_bytes: int | None = None) -> None:
        """Start or resume the run and disturb it at a random moment. Raises LostError."""
        started = self.run.config.is_file()
        arguments = ["--resume", str(self.run.path)] if started else ["--config", str(self.expected.config)]
        process = subprocess.Popen(
            [sys.executable, str(TRAIN), *arguments],
            cwd=self.folder,
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=partial(faults.prepare, disk_bytes),
        )
        has_happened = False
        try:
            if fault:
                faults.wait(process, self.rng.uniform(0, self.expected.duration_s))
                has_happened = fault(process, self.rng)
            _, errors = process.communicate(timeout=HANGS_AFTER_S)
        except subprocess.TimeoutExpired:
            raise LostError(f"{name}: the process hangs") from None
        finally:
            process.kill()
            process.wait()
        status = process.returncode
        if disk_bytes is not None:
            has_happened = status != 0  # a run that has little left to write fits
        if has_happened:
            self.counts[name] += 1
        stopped = STOPPED if self.expected.processes == 1 else (*STOPPED, 1)  # torchrun's own status after any failure
        may_fail = name in (FULL_DISK, TEXT_CUT)  # with an error in one line
        expected = (0, *(stopped if has_happened else ()), *((1, 2) if may_fail else ()))
        if f'File "{TRAIN}"' in errors or status not in expected:  # a traceback; torchrun prints another of its own
            raise LostError(f"{name}: status {status}\n{errors}")
        if not self.run.config.is_file() and self.run.path.exists():
            self.run.path.rename(self.run.path.with_name(f"{self.run.path.name}-unborn-{self.counts.total()}"))
