"""Training on two hosts whose network fails: two network namespaces, joined by a pair of virtual interfaces."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT
from helpers import assert_same_but_for_the_name, metrics, untimed

LIMIT_S = 20  # the --timeout of train.py
BOUND_S = LIMIT_S + 60  # torchrun gives processes 30 s to end, and ends up to 30 s later itself
HANG_S = 240


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=30)


@pytest.fixture
def hosts():
    """Yield the names of two network namespaces that can reach each other at 10.77.0.1 and 10.77.0.2."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("needs root and the command ip")
    names = [f"host{number}-{os.getpid()}" for number in (1, 2)]
    with contextlib.ExitStack() as stack:
        for name in names:
            try:
                ip("netns", "add", name)
            except subprocess.CalledProcessError:
                pytest.skip("network namespaces cannot be created here")
            stack.callback(ip, "netns", "del", name)
        ip("link", "add", "name", "eth0", "netns", names[0], "type", "veth", "peer", "name", "eth0", "netns", names[1])
        for number, name in enumerate(names, start=1):
            ip("-n", name, "address", "add", f"10.77.0.{number}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                ip("-n", name, "link", "set", device, "up")
        yield names


def start(hosts, folders, *arguments, restarts=0):
    """Start one process of train.py on each host, in its own folder; return torchrun's processes."""
    launcher = ["-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", "--master-addr=10.77.0.1"]
    launcher.append(f"--max-restarts={restarts}")
    command = [str(ROOT / "train.py"), *arguments, f"--timeout={LIMIT_S}"]
    return [
        subprocess.Popen(
            ["ip", "netns", "exec", host, sys.executable, *launcher, f"--node-rank={rank}", *command],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {"GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"},
        )
        for rank, (host, folder) in enumerate(zip(hosts, folders, strict=True))
    ]


def finish(processes, expected):
    outputs = [process.communicate(timeout=HANG_S)[0] for process in processes]
    assert [process.returncode for process in processes] == [expected] * 2, outputs
    return outputs


SETTINGS = ["--config", "tiny.yaml", "train.batch_size=6", "train.max_steps=300", "train.checkpoint_every_steps=10"]


@pytest.fixture
def folders(workplace):
    """Return the folders of two hosts without a common file system."""
    folders = [workplace / "first", workplace / "second"]
    for folder in folders:
        folder.mkdir()
        for name in ("tiny.yaml", "text.txt"):
            shutil.copy(workplace / name, folder)
    return folders


def wait_for_step_30(run):
    end = time.monotonic() + HANG_S
    while not (run / "metrics.jsonl").exists() or '"step": 30' not in (run / "metrics.jsonl").read_text():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.root
def test_a_run_on_two_hosts_survives_a_failure_of_the_network_and_of_a_process_and_ends_exactly(hosts, folders):
    calm, cut, killed = (folders[0] / "runs" / name for name in ("calm", "cut", "killed"))
    finish(start(hosts, folders, *SETTINGS, "train.name=calm"), expected=0)

    processes = start(hosts, folders, *SETTINGS, "train.name=cut")
    wait_for_step_30(cut)
    ip("-n", hosts[1], "link", "set", "eth0", "down")
    began_s = time.monotonic()
    outputs = finish(processes, expected=1)
    assert time.monotonic() - began_s < BOUND_S
    for rank, output in enumerate(outputs):
        lines = [line for line in output.splitlines() if line.startswith("train.py: ")]
        assert len(lines) == 1
        assert f"process {rank}: another process of this run has ended or cannot be reached" in lines[0]
        assert lines[0].endswith("resume with --resume runs/cut")
    assert not (folders[1] / "runs").exists()
    ip("-n", hosts[1], "link", "set", "eth0", "up")
    finish(start(hosts, folders, "--resume", "runs/cut"), expected=0)

    processes = start(hosts, folders, *SETTINGS, "train.name=killed", restarts=1)
    wait_for_step_30(killed)
    children = Path(f"/proc/{processes[1].pid}/task/{processes[1].pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGKILL)
    finish(processes, expected=0)

    for run in (cut, killed):
        assert untimed(metrics(run)) == untimed(metrics(calm))
        assert_same_but_for_the_name(*(each / "checkpoints/latest.pt" for each in (calm, run)))


@pytest.mark.slow
@pytest.mark.root
def test_a_sharded_model_resumes_on_two_hosts_without_a_common_file_system(hosts, folders):
    settings = [*SETTINGS, "train.parallel=fsdp", "optim.decay_fraction=0", "train.max_steps=40"]
    finish(start(hosts, folders, *settings, "train.max_steps=60", "train.name=whole"), expected=0)
    finish(start(hosts, folders, *settings, "train.name=halves"), expected=0)
    finish(start(hosts, folders, "--resume", "runs/halves", "train.max_steps=60"), expected=0)
    assert not (folders[1] / "runs").exists()
    assert_same_but_for_the_name(*(folders[0] / f"runs/{name}/checkpoints/latest.pt" for name in ("whole", "halves")))
