"""What must be checked and set before anything else: import this module first, before torch.

Ctrl-C: while PyTorch is imported, it ends a command with one line instead of a traceback. `run_command` restores
Python's handler.

OpenMP: PyTorch reads once how long threads spin at a barrier before they sleep. Waking up costs time, and spinning
takes it from other processes: with the default, 300,000, each of two runs on two cores takes up to 12 times as long as
a single run; with this count 3.8 times, and a single run takes 10 % longer.

matplotlib: it ends if it cannot find the backend that MPLBACKEND names. No command needs a backend.
"""

import importlib.util
import os
import signal
import sys
import time
from pathlib import Path

STARTED_S = time.perf_counter()  # before the import of torch, which is part of a run's time
LIBRARIES = ("torch", "numpy", "tqdm", "filelock", "platformdirs", "yaml", "safetensors")


def require(*libraries: str) -> None:
    """Exit with one line that says what to do if Python is too old or cannot find a library."""
    missing = ["Python 3.11"] * (sys.version_info < (3, 11))
    missing += [name for name in libraries if importlib.util.find_spec(name) is None]
    if missing:
        programs = Path(__file__).resolve().parents[1] / ".venv" / ("Scripts" if os.name == "nt" else "bin")
        advice = f"activate the environment (. {programs / 'activate'}), or create it as README.md says"
        print(f"{sys.executable} lacks {', '.join(missing)}: {advice}", file=sys.stderr)
        sys.exit(2)


def _end(number: int, _frame: object) -> None:
    os.write(2, b"\nInterrupted while starting; nothing was written\n")
    os._exit(128 + number)


is_command = Path(sys.argv[0]).name in ("train.py", "sample.py", "-m")  # -m: while the package of a command is imported
if is_command and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _end)
if is_command:
    os.environ.pop("MPLBACKEND", None)  # Jupyter sets it for its own environment

require(*LIBRARIES)  # of train.py and sample.py

if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
    os.environ["GOMP_SPINCOUNT"] = "8000"
