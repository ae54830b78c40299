"""Start the processes of a run, and end them with the process that started them."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from training.processes.threads import n_cores


def become_torchrun(n_processes: int, arguments: Sequence[str] | None) -> NoReturn:
    """Replace this process by torchrun, which starts n_processes of this command on this machine.

    arguments: of the command; None: those of this process.
    """
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, n_cores() // n_processes)))
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={n_processes}"]
    command = [sys.argv[0], *(sys.argv[1:] if arguments is None else arguments)]
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, *launcher, *command])


def stop_with(parent: int) -> Callable[[], None] | None:
    """Return a function after whose call, on Linux, this process saves and stops if its parent process dies.

    It is safe between a fork and an exec. parent: the number of the parent process. None on other systems.
    """
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)  # loaded before the fork: little is safe after it
    pr_set_pdeathsig = 1  # from linux/prctl.h

    def prepare() -> None:
        libc.prctl(pr_set_pdeathsig, signal.SIGTERM)
        if os.getppid() != parent:  # the parent died before prctl
            os._exit(1)

    return prepare
