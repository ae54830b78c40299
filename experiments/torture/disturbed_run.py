"""A run that is disturbed again and again, and resumed each time."""

import functools
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from experiments.torture import faults
from training.runs.run_folder import RunFolder
from training.settings.config_file import load_config

TRAIN = Path(__file__).resolve().parents[2] / "train.py"
HANGS_AFTER_S = 120
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}  # another number of threads would change the last bits
# A signal that arrives before the run has begun ends the process without a word.
STOPPED = (-signal.SIGKILL, -signal.SIGINT, -signal.SIGTERM, 128 + signal.SIGINT, 128 + signal.SIGTERM)
Fault = Callable[[subprocess.Popen], bool]  # whether the fault happened before the process ended


class LostError(Exception):
    """The run did not survive a fault; the message says how."""


class DisturbedRun:
    """A run of a config in a folder. The random numbers select the faults and their moments.

    encoded: the encoded text. duration_s: of an undisturbed session. counts: the faults so far, by name.
    """

    def __init__(self, folder: Path, config: Path, encoded: Path, rng: random.Random, duration_s: float):
        self.folder, self.config, self.encoded, self.rng, self.duration_s = folder, config, encoded, rng, duration_s
        self.run = RunFolder(folder / "runs" / config.stem)
        self.processes = load_config(config).train.processes
        self.counts: Counter[str] = Counter()
        running = {
            "SIGKILL": lambda p: faults.send(signal.SIGKILL, p, rng, duration_s),
            "SIGTERM": lambda p: faults.send(signal.SIGTERM, p, rng, duration_s),
            "Ctrl-C": lambda p: faults.send(signal.SIGINT, p, rng, duration_s),
            "two Ctrl-C": lambda p: faults.send_twice(p, rng, duration_s),
            "SIGKILL during a save": lambda p: faults.kill_during_save(self.run, p, rng, duration_s),
            "encoded text cut while in use": self._cut_text,
        }
        if self.processes > 1:
            del running["two Ctrl-C"]  # torchrun waits for its processes after the first
        self.while_running: dict[str, Fault] = running
        self.while_stopped: dict[str, Callable[[Path, random.Random], None]] = {
            "bit flipped in a checkpoint": faults.flip_bit,
            "checkpoint cut": faults.truncate,
            "checkpoint filled with zeros": faults.fill_with_zeros,
            "bit flipped in the encoded text": faults.flip_bit,
            "encoded text deleted": lambda path, _: path.unlink(),
        }

    def disturb(self, n_faults: int) -> None:
        """Disturb n_faults sessions or the files between them, then let the run finish. Raises LostError."""
        for _ in range(n_faults):
            name = self.rng.choice([*self.while_running, *self.while_stopped, "full disk"])
            if name in self.while_stopped:
                self._damage(name)
            elif name == "full disk":
                size = self.run.latest.stat().st_size if self.run.latest.exists() else 200_000
                self._session(name, lambda _: False, may_fail=True, disk_bytes=self.rng.randrange(size * 5 // 4))
            else:
                self._session(name, self.while_running[name], may_fail=name == "encoded text cut while in use")
        self._session("", lambda _: False)
        if not self.run.metrics.is_file():
            raise LostError("the run has no folder")

    def _session(self, name: str, fault: Fault, *, may_fail: bool = False, disk_bytes: int | None = None) -> None:
        """Start or resume the run and disturb it. may_fail: the session may end with an error in one line."""
        started = self.run.config.is_file()
        arguments = ["--resume", str(self.run.path)] if started else ["--config", str(self.config)]
        process = subprocess.Popen(
            [sys.executable, str(TRAIN), *arguments],
            cwd=self.folder,
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=functools.partial(faults.prepare, disk_bytes),
        )
        try:
            has_happened = fault(process)
            _, errors = process.communicate(timeout=HANGS_AFTER_S)
        except subprocess.TimeoutExpired:
            raise LostError(f"{name or 'an undisturbed session'}: the process hangs") from None
        finally:
            process.kill()
            process.wait()
        status = process.returncode
        if disk_bytes is not None:
            has_happened = status != 0  # a run that has little left to write fits
        if has_happened:
            self.counts[name] += 1
        stopped = STOPPED if self.processes == 1 else (*STOPPED, 1)  # torchrun's own status after any failure
        expected = (0, *(stopped if has_happened else ()), *((1, 2) if may_fail else ()))
        if f'File "{TRAIN}"' in errors or status not in expected:  # a traceback; torchrun prints another of its own
            raise LostError(f"{name or 'an undisturbed session'}: status {status}\n{errors}")
        if not self.run.config.is_file() and self.run.path.exists():
            self.run.path.rename(self.run.path.with_name(f"{self.run.path.name}-unborn-{self.counts.total()}"))

    def _damage(self, name: str) -> None:
        path = self.encoded if "text" in name else faults.expendable_checkpoint(self.run)
        if path and path.exists() and path.stat().st_size:
            self.while_stopped[name](path, self.rng)
            self.counts[name] += 1

    def _cut_text(self, process: subprocess.Popen) -> bool:
        faults.wait(process, self.rng.uniform(0, self.duration_s))
        if process.poll() is not None or not self.encoded.exists() or not self.encoded.stat().st_size:
            return False
        faults.truncate(self.encoded, self.rng)
        return True
