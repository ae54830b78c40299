"""Run commands with time limits; write each result to disk as soon as its command ends."""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[1]
TARGET_LOSS = 1.4697  # validation loss of nanoGPT's GPU recipe for tiny Shakespeare
LONGEST_LOG = 150_000  # bytes of output kept from each step
KILL_S = 10  # seconds between SIGTERM and SIGKILL


class StepRunner:
    """A runner that keeps the records of its steps in files."""

    def __init__(self, folder: Path, work: Path, machine: dict, limit_s: float):
        self.folder, self.work, self.machine = folder, work, machine
        self.steps: list[dict] = []
        self.end_s = time.monotonic() + limit_s - 2 * KILL_S
        self.log = folder / "log.txt"
        self.log.write_bytes(b"")

    @property
    def left_s(self) -> float:
        return max(1.0, self.end_s - time.monotonic())

    def run(
        self,
        name: str,
        command: list,
        *,
        share: float,
        result: Callable[[dict], dict] = lambda step: {},
        cwd: Path | None = None,
        keep_output: bool = True,
    ) -> dict:
        """Run a command and write its record, extended by `result`, to the files; return the record."""
        shown = shlex.join(str(part) for part in command[1:]).replace(f"{ROOT}/", "").replace(f"{self.folder}/", "")
        began_s, limit_s = time.monotonic(), share * self.left_s
        print(f"{name} (at most {limit_s:.0f} s) ...", flush=True)
        start = self.log.stat().st_size
        with self.log.open("ab") as log:
            log.write(f"\n== {name}: python {shown}\n".encode())
            log.flush()
            output = log if keep_output else subprocess.DEVNULL
            status = run_command([str(c) for c in command], limit_s, cwd or self.work, output, log)
        content = self.log.read_bytes()
        self.log.write_bytes(content[:start] + content[start:][-LONGEST_LOG:])
        tail = content[start:].decode(errors="replace").strip().splitlines()[-20:]
        step = {
            "name": name,
            "command": f"python {shown}",
            "status": status,
            "value": tail[-1].strip("= "),
            "seconds": round(time.monotonic() - began_s, 2),
            "tail": tail,
        }
        step |= result(step)
        self.steps.append(step)
        self.save()
        print(f"  {status} after {step['seconds']:.0f} s: {step['value']}", flush=True)
        return step

    def save(self) -> None:
        """Rewrite results.json and table.md."""
        results = {"machine": self.machine, "target_loss": TARGET_LOSS, "steps": self.steps}
        header = f"{self.machine['gpu'] or 'CPU'}, PyTorch {self.machine['torch']}"
        (self.folder / "results.json").write_text(json.dumps(results, indent=1) + "\n")
        table = [f"| {header} | command | value |", "|---|---|---|"]
        for step in self.steps:
            value = step["value"] if step["status"] == "passed" else f"{step['status']}; {step['value']}"
            table.append(f"| {step['name']} | `{step['command']}` | {value} |")
            for figure in step.get("figures", []):
                share = f", {figure['median'] / figure['limit']:.0%} of its limit" if figure["limit"] else ""
                table.append(f"| {figure['name']} | | {figure['median']:,.4g} {figure['unit']}{share} |")
        (self.folder / "table.md").write_text("\n".join(table) + "\n")

    def report(self) -> int:
        """Print the table and all failures; return the exit status."""
        print((self.folder / "table.md").read_text())
        failures = [step for step in self.steps if step["status"] != "passed"]
        for step in failures:
            print(f"FAILURE: {step['name']}: {step['status']}", *step["tail"], sep="\n  ")
        print(f"{len(self.steps) - len(failures)} of {len(self.steps)} steps passed; results are in {self.folder}")
        return 1 if failures else 0


def run_command(command: list[str], limit_s: float, cwd: Path, output: IO | int, errors: IO) -> str:
    """Run a command; return "passed", "failed" or, if it and its processes are ended after limit_s, "out of time"."""
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=errors,
        start_new_session=True,
    )
    try:
        return "passed" if process.wait(timeout=limit_s) == 0 else "failed"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)  # train.py saves, the benchmark writes its file
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=KILL_S)
        return "out of time"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
