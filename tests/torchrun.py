"""Start commands with torchrun, and watch the runs that they train."""

import os
import subprocess
import sys
from pathlib import Path

from conftest import ROOT
from helpers import metrics, wait_for

LIMIT_S = 240  # detects a hang


def torchrun(n, *command, options=(), **settings):
    """Start n processes of a command."""
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={n}", *options, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        **settings,
    )


def train(n, *arguments, name, options=(), config="tiny.yaml"):
    command = [str(ROOT / "train.py"), "--config", config, f"train.name={name}", "train.batch_size=8", *arguments]
    return torchrun(n, *command, options=options)


def finish(process, expected=0):
    output, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == expected, errors
    return output, errors


def lines_of_train(errors):
    return [line for line in errors.splitlines() if line.startswith("train.py: ")]


def losses(run, name):
    return [record[name] for record in metrics(run) if name in record]


def workers(process, n=2):
    """Return the process ids of torchrun's workers."""
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()][:n]


def wait_for_step(name, step):
    file = Path("runs") / name / "metrics.jsonl"
    wait_for(lambda: file.exists() and f'"step": {step}' in file.read_text())
